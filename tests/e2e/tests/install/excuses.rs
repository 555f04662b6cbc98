//! Rights that are granted, and that a life of a release in a test does not use: which, and why.

use crate::rights::Excuse;

/// What no quiet night calls for.
pub const IN_A_QUIET_NIGHT: &[Excuse] = &[
    (
        "offhours",
        "create",
        "offhoursschedules",
        "asked beside the patch of the self-test, which the audit log shows",
    ),
    (
        "offhours",
        "get",
        "deployments",
        "remembering reads the parent only where the watch lags behind",
    ),
    ("offhours", "get", "statefulsets", "the same"),
    ("offhours", "get", "replicasets", "the same"),
    ("offhours", "get", "rollouts", "the same"),
    ("offhours", "get", "kafkaconnects", "the same"),
    ("offhours", "get", "kafkamirrormaker2s", "the same"),
    ("offhours", "get", "kafkabridges", "the same"),
    ("offhours", "get", "prometheuses", "the same"),
    (
        "offhours",
        "patch",
        "configmaps",
        "a backup is renewed only where somebody made an HPA of that name meanwhile",
    ),
    ("offhours-uninstall", "create", "leases", "only where the Lease is gone"),
    (
        "offhours-uninstall",
        "patch",
        "namespaces",
        "only where a wake was written in a moment without webhook",
    ),
    (
        "offhours-uninstall",
        "watch",
        "*",
        "it may be done before its watches begin",
    ),
];

/// What a release with rights in single namespaces, without a webhook, has no call for.
pub const IN_SINGLE_NAMESPACES: &[Excuse] = &[
    ("offhours", "patch", "statefulsets", "there are none"),
    ("offhours-uninstall", "patch", "statefulsets", "there are none"),
    ("offhours", "patch", "horizontalpodautoscalers", "there are none"),
    (
        "offhours-uninstall",
        "patch",
        "horizontalpodautoscalers",
        "there are none",
    ),
    ("offhours", "patch", "horizontalpodautoscalers/status", "there are none"),
    (
        "offhours-uninstall",
        "patch",
        "horizontalpodautoscalers/status",
        "there are none",
    ),
    ("offhours", "patch", "rollouts", "there are none"),
    ("offhours", "watch", "rollouts", "there are none"),
    ("offhours", "patch", "scaledobjects", "there are none"),
    ("offhours", "watch", "scaledobjects", "there are none"),
    ("offhours-uninstall", "patch", "rollouts", "there are none"),
    ("offhours-uninstall", "patch", "scaledobjects", "there are none"),
    ("offhours", "create", "leases", "the chart makes it"),
    ("offhours-uninstall", "create", "leases", "the chart makes it"),
    (
        "offhours",
        "create",
        "configmaps",
        "only for Applications and deleted HPAs",
    ),
    ("offhours", "patch", "configmaps", "the same"),
    ("offhours", "delete", "configmaps", "the same"),
    ("offhours-uninstall", "delete", "configmaps", "the same"),
    (
        "offhours-uninstall",
        "watch",
        "*",
        "it may be done before its watches begin",
    ),
];

/// Two passes over one Deployment, by CronJobs.
pub const IN_ONE_PASS: &[Excuse] = &[
    ("offhours", "patch", "horizontalpodautoscalers", "there are none"),
    ("offhours", "patch", "horizontalpodautoscalers/status", "there are none"),
    (
        "offhours-uninstall",
        "patch",
        "horizontalpodautoscalers",
        "there are none",
    ),
    (
        "offhours-uninstall",
        "patch",
        "horizontalpodautoscalers/status",
        "there are none",
    ),
    (
        "offhours",
        "patch",
        "configmaps",
        "a backup of an Application is made and removed; it is renewed only where one was left behind",
    ),
    ("offhours", "create", "events", "only of what was skipped or has failed"),
    (
        "offhours",
        "list",
        "offhoursschedules",
        "only where their definition is installed, which this mode does not need",
    ),
    ("offhours", "watch", "offhoursschedules", "the same"),
    ("offhours-uninstall", "patch", "offhoursschedules", "the same"),
    (
        "offhours-uninstall",
        "patch",
        "namespaces",
        "only where a wake was written in a moment without webhook",
    ),
    ("offhours-uninstall", "create", "leases", "only where the Lease is gone"),
    (
        "offhours-uninstall",
        "watch",
        "*",
        "it may be done before its watches begin",
    ),
];
