"""The findings of this check. An id is stable and never reused; README.md explains each."""

from __future__ import annotations

from gpuctl.audit.finding import Code, Severity

BUNDLE_EMPTY = Code("KWH001", "a caBundle is missing or empty")
BUNDLE_UNREADABLE = Code("KWH002", "a caBundle is not a certificate")
CA_EXPIRED = Code("KWH003", "a caBundle has expired")
CA_NOT_YET_VALID = Code("KWH004", "a caBundle is not valid yet")
NOT_A_CA = Code("KWH005", "a caBundle holds a certificate that is no CA")
CA_EXPIRES_SOON = Code("KWH006", "a caBundle expires soon", Severity.WARNING)
SEVERAL_CAS = Code("KWH007", "a caBundle holds several certificates", Severity.WARNING)

BUNDLES_DISAGREE = Code("KWH010", "caBundles disagree")
ROTATING = Code("KWH011", "certificates are being rotated", Severity.INFO)
FOREIGN_WRITER = Code("KWH012", "a caBundle was last written by another than its owner", Severity.INFO)

TWO_OWNERS = Code("KWH020", "two certificate owners at once")
NO_OWNER = Code("KWH021", "nobody keeps the certificates", Severity.WARNING)
OTHER_NAME = Code("KWH022", "the manager makes its certificate for another Service")
NEVER_INJECTED = Code("KWH023", "the manager does not write this configuration's caBundle", Severity.WARNING)
NOT_MOUNTED = Code("KWH024", "the manager does not mount its webhook certificate")

SERVICE_MISSING = Code("KWH030", "the webhook Service does not exist")
LEFT_BEHIND = Code("KWH031", "left by a Kueue that was removed")
WRONG_PORT = Code("KWH032", "the port that webhooks call leads nowhere")
NO_SERVICE = Code("KWH033", "a webhook calls no Service", Severity.WARNING)
SEVERAL_SERVICES = Code("KWH034", "one configuration calls several Services", Severity.WARNING)

NO_MANAGER = Code("KWH040", "Kueue has no manager")
ZERO_REPLICAS = Code("KWH041", "the manager has zero replicas")
CRASHING = Code("KWH042", "the manager crashes again and again")
NOT_READY = Code("KWH043", "the manager is not ready")
NO_ENDPOINTS = Code("KWH044", "the webhook Service has no ready endpoint")
FEWER_PODS = Code("KWH045", "some pods of the manager are not ready", Severity.WARNING)
NO_WEBHOOKS = Code("KWH046", "Kueue's admission webhooks are missing")

MIXED_RELEASES = Code("KWH050", "manager, CRDs and webhooks are of different releases")
OLD_PODS = Code("KWH051", "the manager was not restarted since its upgrade", Severity.WARNING)
NO_CONVERSION = Code("KWH052", "a CRD serves two versions without conversion")

LOOSENED = Code("KWH060", "failurePolicy was loosened", Severity.WARNING)
SELF_BLOCKING = Code("KWH061", "a webhook applies to Kueue's own or the system's namespace", Severity.WARNING)

READS_BROKEN = Code("KWH070", "Kueue's objects can't be read in every served version")
WRONG_CONVERSION = Code("KWH071", "a conversion calls another path than Kueue's")

VISIBILITY_DEAD = Code("KWH080", "the visibility API is not available")
VISIBILITY_UNVERIFIED = Code("KWH081", "the visibility API's certificate can't be verified")

NOT_VERIFIED = Code("KWH090", "the served certificate is not signed by the caBundle")
SERVED_EXPIRED = Code("KWH091", "the served certificate has expired or is not valid yet")
SERVED_OTHER_NAME = Code("KWH092", "the served certificate bears another name")
NO_ANSWER = Code("KWH093", "the webhook does not answer")
PATH_NOT_SERVED = Code("KWH094", "the manager does not serve a registered webhook")
DID_NOT_RUN = Code("KWH095", "the mutating webhook did not run")
SECRET_DIFFERS = Code("KWH096", "a caBundle is not the CA of the webhook's Secret")
SECRET_UNUSABLE = Code("KWH097", "the webhook's Secret holds a certificate that is no good")

ALL = (
    BUNDLE_EMPTY,
    BUNDLE_UNREADABLE,
    CA_EXPIRED,
    CA_NOT_YET_VALID,
    NOT_A_CA,
    CA_EXPIRES_SOON,
    SEVERAL_CAS,
    BUNDLES_DISAGREE,
    ROTATING,
    FOREIGN_WRITER,
    TWO_OWNERS,
    NO_OWNER,
    OTHER_NAME,
    NEVER_INJECTED,
    NOT_MOUNTED,
    SERVICE_MISSING,
    LEFT_BEHIND,
    WRONG_PORT,
    NO_SERVICE,
    SEVERAL_SERVICES,
    NO_MANAGER,
    ZERO_REPLICAS,
    CRASHING,
    NOT_READY,
    NO_ENDPOINTS,
    FEWER_PODS,
    NO_WEBHOOKS,
    MIXED_RELEASES,
    OLD_PODS,
    NO_CONVERSION,
    LOOSENED,
    SELF_BLOCKING,
    READS_BROKEN,
    WRONG_CONVERSION,
    VISIBILITY_DEAD,
    VISIBILITY_UNVERIFIED,
    NOT_VERIFIED,
    SERVED_EXPIRED,
    SERVED_OTHER_NAME,
    NO_ANSWER,
    PATH_NOT_SERVED,
    DID_NOT_RUN,
    SECRET_DIFFERS,
    SECRET_UNUSABLE,
)
