// A device plugin for one resource: NAME ID... registers these devices with the kubelet of its node, healthy,
// and hands them out with nothing in them. It runs where the kubelet's folder is at /var/lib/kubelet.
package main

import (
	"context"
	"log"
	"net"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const socket = "gpuctl-bed.sock"

type plugin struct {
	api.UnimplementedDevicePluginServer
	devices []*api.Device
}

func (p *plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

func (p *plugin) ListAndWatch(_ *api.Empty, stream api.DevicePlugin_ListAndWatchServer) error {
	if err := stream.Send(&api.ListAndWatchResponse{Devices: p.devices}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

func (p *plugin) Allocate(_ context.Context, asked *api.AllocateRequest) (*api.AllocateResponse, error) {
	given := &api.AllocateResponse{}
	for range asked.ContainerRequests {
		given.ContainerResponses = append(given.ContainerResponses, &api.ContainerAllocateResponse{})
	}
	return given, nil
}

func main() {
	served := &plugin{}
	for _, id := range os.Args[2:] {
		served.devices = append(served.devices, &api.Device{ID: id, Health: api.Healthy})
	}
	path := filepath.Join(api.DevicePluginPath, socket)
	_ = os.Remove(path)
	listener, err := net.Listen("unix", path)
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer()
	api.RegisterDevicePluginServer(server, served)
	go func() { log.Fatal(server.Serve(listener)) }()
	if err := register(os.Args[1]); err != nil {
		log.Fatal(err)
	}
	log.Print("registered ", os.Args[1])
	select {}
}

func register(resource string) error {
	connection, err := grpc.NewClient("unix://"+api.KubeletSocket,
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	limited, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	_, err = api.NewRegistrationClient(connection).Register(limited, &api.RegisterRequest{
		Version: api.Version, Endpoint: socket, ResourceName: resource, Options: &api.DevicePluginOptions{},
	})
	return err
}
