//! The arguments of each program of the control plane.

use anyhow::Context as _;

use crate::{control_plane::ControlPlane, identity::Identity, process::Program};

/// Ports of one start.
pub(crate) struct Ports {
    pub(crate) etcd_client: u16,
    pub(crate) etcd_peer: u16,
    pub(crate) api: u16,
    pub(crate) controller_manager: u16,
    pub(crate) scheduler: u16,
    pub(crate) kwok: u16,
}

impl ControlPlane {
    pub(crate) fn program(&self, name: &str) -> anyhow::Result<Program> {
        let path = self
            .programs
            .get(name)
            .with_context(|| format!("{name} is not among the programs that were built"))?;
        Ok(Program::new(path))
    }

    pub(crate) fn etcd(&self, ports: &Ports) -> Program {
        let client = format!("http://127.0.0.1:{}", ports.etcd_client);
        let peer = format!("http://127.0.0.1:{}", ports.etcd_peer);
        let path = self.programs.get("etcd").cloned().unwrap_or_default();
        let program = Program::new(path)
            .arg("--name=etcd")
            .arg(format!("--data-dir={}", self.folder.file("etcd").display()))
            .arg(format!("--listen-client-urls={client}"))
            .arg(format!("--advertise-client-urls={client}"))
            .arg(format!("--listen-peer-urls={peer}"))
            .arg(format!("--initial-advertise-peer-urls={peer}"))
            .arg(format!("--initial-cluster=etcd={peer}"))
            .arg("--quota-backend-bytes=8589934592")
            .arg("--log-level=warn");
        if self.options.fsync {
            program
        } else {
            program.arg("--unsafe-no-fsync")
        }
    }

    pub(crate) fn api_server(&self, ports: &Ports) -> anyhow::Result<Program> {
        let file = |name: &str| self.folder.file(name).display().to_string();
        let mut program = self
            .program("kube-apiserver")?
            .arg(format!("--etcd-servers=http://127.0.0.1:{}", ports.etcd_client))
            .arg("--bind-address=127.0.0.1")
            .arg(format!("--secure-port={}", ports.api))
            // Only written into the `kubernetes` Service, which is switched off beside it; without it a machine that has
            // no network at all could not start.
            .arg("--advertise-address=192.0.2.1")
            .arg("--endpoint-reconciler-type=none")
            .arg(format!("--tls-cert-file={}", file("server.crt")))
            .arg(format!("--tls-private-key-file={}", file("server.key")))
            .arg(format!("--client-ca-file={}", file("ca.crt")))
            .arg(format!("--requestheader-client-ca-file={}", file("ca.crt")))
            .arg("--requestheader-allowed-names=front-proxy")
            .arg("--requestheader-username-headers=X-Remote-User")
            .arg("--requestheader-group-headers=X-Remote-Group")
            .arg("--requestheader-extra-headers-prefix=X-Remote-Extra-")
            .arg(format!("--proxy-client-cert-file={}", file("front-proxy.crt")))
            .arg(format!("--proxy-client-key-file={}", file("front-proxy.key")))
            .arg("--service-account-issuer=https://kubernetes.default.svc")
            .arg(format!("--service-account-key-file={}", file("service-account.pub")))
            .arg(format!(
                "--service-account-signing-key-file={}",
                file("service-account.key")
            ))
            .arg("--service-cluster-ip-range=10.0.0.0/16")
            // Pods need no token here, and would wait for their account's. Nodes would be born with a taint that only the
            // node lifecycle controller takes away, which is left out.
            .arg("--disable-admission-plugins=ServiceAccount,TaintNodesByCondition")
            .arg("--authorization-mode=RBAC")
            .arg(format!("--cert-dir={}", file("apiserver")));
        if let Some(policy) = self.options.audit.policy() {
            let path = self.folder.write("audit-policy.yaml", &policy)?;
            program = program
                .arg(format!("--audit-policy-file={}", path.display()))
                .arg(format!("--audit-log-path={}", file(crate::audit::AUDIT_LOG)))
                // In megabytes: never start a new file under a reader.
                .arg("--audit-log-maxsize=100000");
        }
        Ok(self
            .with_gates(program)
            .args(self.options.api_server_arguments.iter().cloned()))
    }

    pub(crate) fn controller_manager(&self, ports: &Ports) -> anyhow::Result<Program> {
        let kubeconfig = self.kubeconfig_for(&Identity::user("system:kube-controller-manager", &[]))?;
        let left_out = [
            "node-ipam-controller",
            "node-lifecycle-controller",
            "persistentvolume-attach-detach-controller",
            "persistentvolume-expander-controller",
            "taint-eviction-controller",
            "ttl-controller",
        ];
        let controllers: Vec<String> = left_out.iter().map(|name| format!("-{name}")).collect();
        let program = self
            .program("kube-controller-manager")?
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .arg(format!("--authentication-kubeconfig={}", kubeconfig.display()))
            .arg(format!("--authorization-kubeconfig={}", kubeconfig.display()))
            .arg("--bind-address=127.0.0.1")
            .arg(format!("--secure-port={}", ports.controller_manager))
            .arg(format!(
                "--cert-dir={}",
                self.folder.file("controller-manager").display()
            ))
            .arg("--use-service-account-credentials=true")
            .arg(format!(
                "--service-account-private-key-file={}",
                self.folder.file("service-account.key").display()
            ))
            .arg(format!("--root-ca-file={}", self.folder.file("ca.crt").display()))
            .arg("--leader-elect=false")
            .arg(format!("--controllers=*,{}", controllers.join(",")))
            .arg("--concurrent-deployment-syncs=20")
            .arg("--concurrent-replicaset-syncs=20")
            .arg("--concurrent-statefulset-syncs=20")
            .arg("--kube-api-qps=1000")
            .arg("--kube-api-burst=2000")
            .arg(format!(
                "--horizontal-pod-autoscaler-sync-period={}ms",
                self.options.hpa_sync_period.as_millis()
            ))
            .arg(format!(
                "--horizontal-pod-autoscaler-downscale-stabilization={}ms",
                self.options.hpa_downscale_stabilization.as_millis()
            ))
            .arg("--horizontal-pod-autoscaler-cpu-initialization-period=1s")
            .arg("--horizontal-pod-autoscaler-initial-readiness-delay=1s");
        Ok(self
            .with_gates(program)
            .args(self.options.controller_manager_arguments.iter().cloned()))
    }

    pub(crate) fn scheduler(&self, ports: &Ports) -> anyhow::Result<Program> {
        let kubeconfig = self.kubeconfig_for(&Identity::user("system:kube-scheduler", &[]))?;
        let program = self
            .program("kube-scheduler")?
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .arg(format!("--authentication-kubeconfig={}", kubeconfig.display()))
            .arg(format!("--authorization-kubeconfig={}", kubeconfig.display()))
            .arg("--bind-address=127.0.0.1")
            .arg(format!("--secure-port={}", ports.scheduler))
            .arg(format!("--cert-dir={}", self.folder.file("scheduler").display()))
            .arg("--leader-elect=false")
            .arg("--kube-api-qps=1000")
            .arg("--kube-api-burst=2000");
        Ok(self.with_gates(program))
    }

    pub(crate) fn kwok(&self, ports: &Ports) -> anyhow::Result<Program> {
        let kubeconfig = self.kubeconfig_for(&Identity::user("kwok", &["system:masters"]))?;
        let stages = self.folder.write("stages.yaml", include_str!("stages.yaml"))?;
        Ok(self
            .program("kwok")?
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .arg("--manage-all-nodes")
            .arg("--node-ip=127.0.0.1")
            .arg(format!("--server-address=127.0.0.1:{}", ports.kwok))
            .arg(format!("--config={}", stages.display()))
            // Nobody watches over nodes here, so they need no lease renewals.
            .arg("--node-lease-duration-seconds=0"))
    }

    pub(crate) fn with_gates(&self, program: Program) -> Program {
        if self.options.feature_gates.is_empty() {
            return program;
        }
        program.arg(format!("--feature-gates={}", self.options.feature_gates.join(",")))
    }
}
