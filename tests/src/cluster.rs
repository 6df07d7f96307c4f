//! A whole denv on loopback: one reconciler, hosts, one gateway, each a process of its own.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use denv_schema::Digest;
use denv_schema::api::{JoinRole, StageView};

use crate::client::Client;
use crate::network::Network;
use crate::process::{Process, engines_below, kill_engine};
use crate::repository::ConfigRepository;
use crate::traffic::Application;
use crate::{free_port, programs, until};

/// How a cluster is laid out.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Everything is kept below.
    pub dir: PathBuf,
    /// Where engines' programs are.
    pub engine_path: PathBuf,
    pub weights_dir: Option<PathBuf>,
    /// How often the reconciler looks at Git by itself.
    pub poll: String,
    /// More flags for the reconciler.
    pub reconciler_flags: Vec<String>,
}

impl Layout {
    /// Below `dir`, with an engine as those in `examples/engines` are set up. Git is looked at when somebody says so.
    pub fn with_engine(dir: PathBuf, engine: &Path) -> Self {
        Layout {
            dir,
            engine_path: engine.join("bin"),
            weights_dir: Some(engine.join("weights")),
            poll: "1h".to_owned(),
            reconciler_flags: Vec::new(),
        }
    }
}

pub struct Cluster {
    pub layout: Layout,
    programs: PathBuf,
    pub repository: ConfigRepository,
    pub reconciler: Option<Process>,
    pub hosts: BTreeMap<String, Process>,
    ingresses: BTreeMap<String, u16>,
    /// Where hosts are, if not all at one address.
    pub addresses: BTreeMap<String, Ipv4Addr>,
    /// More flags for the hosts.
    pub host_flags: Vec<String>,
    pub gateway: Option<Process>,
    /// Where each host has a network of its own; else all are on loopback.
    pub network: Option<Network>,
    api_port: u16,
    link_port: u16,
    gateway_port: u16,
    /// The demo customer's key.
    pub key: String,
}

impl Cluster {
    /// Lays the cluster out around the manifests in `manifests`; nothing runs yet. The key in `commerce.yaml` is
    /// replaced by a new one.
    pub fn create(layout: Layout, manifests: &Path) -> anyhow::Result<Self> {
        std::fs::create_dir_all(&layout.dir)?;
        let mut repository = ConfigRepository::create(&layout.dir.join("config"))?;
        repository.copy_from(manifests)?;
        let key = format!("sk-denv-{}", random_text()?);
        let commerce = repository.file("commerce.yaml")?.to_owned();
        let start = commerce.find("sha256:").context("commerce.yaml has a key's hash")?;
        let hash = Digest::of_bytes(key.as_bytes()).to_string();
        let commerce = format!("{}{hash}{}", &commerce[..start], &commerce[start + hash.len()..]);
        repository.write("commerce.yaml", &commerce)?;
        repository.commit("Begin with the quickstart")?;
        Ok(Cluster {
            layout,
            programs: programs()?,
            repository,
            reconciler: None,
            hosts: BTreeMap::new(),
            ingresses: BTreeMap::new(),
            addresses: BTreeMap::new(),
            host_flags: Vec::new(),
            gateway: None,
            network: None,
            api_port: free_port()?,
            link_port: free_port()?,
            gateway_port: free_port()?,
            key,
        })
    }

    /// Starts everything: the reconciler, these hosts, the gateway.
    pub async fn start(&mut self, hosts: &[&str]) -> anyhow::Result<()> {
        self.start_reconciler().await?;
        for host in hosts {
            self.start_host(host).await?;
        }
        self.start_gateway().await
    }

    /// Starts the reconciler, or starts it again, and waits until it answers and has read Git once.
    pub async fn start_reconciler(&mut self) -> anyhow::Result<()> {
        let dir = self.layout.dir.join("reconciler");
        let mut arguments = vec![
            "--source".to_owned(),
            self.repository.remote.display().to_string(),
            "--state-dir".to_owned(),
            dir.display().to_string(),
            "--api-listen".to_owned(),
            format!("127.0.0.1:{}", self.api_port),
            "--link-listen".to_owned(),
            self.link_address(),
            "--poll".to_owned(),
            self.layout.poll.clone(),
        ];
        arguments.extend(self.layout.reconciler_flags.clone());
        let process = self.spawn("reconciler", "denv-reconciler", &arguments)?;
        self.reconciler = Some(process);
        until("the reconciler to read Git", Duration::from_secs(20), || async {
            let source = self.client()?.source().await?;
            Ok(source.accepted.map(drop))
        })
        .await
    }

    /// Starts a host, or starts it again; the first time it joins with a one-time token.
    pub async fn start_host(&mut self, name: &str) -> anyhow::Result<()> {
        let dir = self.layout.dir.join(name);
        let port = match self.ingresses.get(name) {
            Some(port) => *port,
            None => free_port()?,
        };
        self.ingresses.insert(name.to_owned(), port);
        let mut arguments = vec![
            "run".to_owned(),
            "--server".to_owned(),
            self.link_address(),
            "--state-dir".to_owned(),
            dir.display().to_string(),
            "--ingress-listen".to_owned(),
            format!("{}:{port}", self.address(name)),
            "--engine-path".to_owned(),
            self.layout.engine_path.display().to_string(),
        ];
        arguments.extend(self.host_flags.clone());
        if let Some(weights) = &self.layout.weights_dir {
            arguments.extend(["--weights-dir".to_owned(), weights.display().to_string()]);
        }
        if !dir.join("credentials").exists() {
            arguments.extend(self.token(JoinRole::Host, name).await?);
        }
        let process = self.spawn(name, "denvd", &arguments)?;
        self.hosts.insert(name.to_owned(), process);
        Ok(())
    }

    pub async fn start_gateway(&mut self) -> anyhow::Result<()> {
        let dir = self.layout.dir.join("gateway");
        let mut arguments = vec![
            "--server".to_owned(),
            self.link_address(),
            "--state-dir".to_owned(),
            dir.display().to_string(),
            "--listen".to_owned(),
            format!("127.0.0.1:{}", self.gateway_port),
        ];
        if !dir.join("credentials").exists() {
            arguments.extend(self.token(JoinRole::Gateway, "gateway").await?);
        }
        let process = self.spawn("gateway", "denv-gateway", &arguments)?;
        self.gateway = Some(process);
        let health = format!("{}/health", self.gateway_url());
        until("the gateway to be ready", Duration::from_secs(20), || async {
            Ok(reqwest::get(&health).await?.status().is_success().then_some(()))
        })
        .await
    }

    async fn token(&self, role: JoinRole, name: &str) -> anyhow::Result<[String; 2]> {
        // A file keeps the token out of the process list.
        let path = self.layout.dir.join(format!("{name}.token"));
        std::fs::write(&path, self.client()?.token(role, name).await?)?;
        Ok(["--token-file".to_owned(), path.display().to_string()])
    }

    fn spawn(&self, name: &str, program: &str, arguments: &[String]) -> anyhow::Result<Process> {
        let log = self.layout.dir.join(format!("{name}.log"));
        let start = || Process::start(name, &self.programs.join(program), arguments, &log);
        match &self.network {
            Some(network) => network.inside(name, start),
            None => start(),
        }
    }

    /// Where hosts and gateways dial in.
    pub fn link_address(&self) -> String {
        let address = self.network.as_ref().map_or(Ipv4Addr::LOCALHOST, Network::middle);
        format!("{address}:{}", self.link_port)
    }

    fn address(&self, host: &str) -> Ipv4Addr {
        let of_its_own = self.network.as_ref().and_then(|network| network.address(host));
        of_its_own.or_else(|| self.addresses.get(host).copied()).unwrap_or(Ipv4Addr::LOCALHOST)
    }

    pub fn api_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.api_port)
    }

    pub fn gateway_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.gateway_port)
    }

    pub fn admin_token_file(&self) -> PathBuf {
        self.layout.dir.join("reconciler/admin-token")
    }

    pub fn client(&self) -> anyhow::Result<Client> {
        let token = std::fs::read_to_string(self.admin_token_file()).context("no admin token yet")?;
        Client::new(&self.api_url(), &token)
    }

    pub fn application(&self, model: &str) -> anyhow::Result<Application> {
        Application::new(&self.gateway_url(), &self.key, model)
    }

    /// Commits what was edited and has the reconciler look at once.
    pub async fn push(&self, message: &str) -> anyhow::Result<()> {
        self.repository.commit(message)?;
        self.client()?.refresh().await?;
        Ok(())
    }

    /// Waits until a stage is as `wanted` says.
    pub async fn stage_until(
        &self,
        stage: &str,
        what: &str,
        patience: Duration,
        wanted: impl Fn(&StageView) -> bool,
    ) -> anyhow::Result<StageView> {
        let last = std::sync::Mutex::new(None);
        let waited = until(what, patience, || async {
            let view = self.client()?.stage(stage).await?;
            let is_wanted = wanted(&view);
            *last.lock().expect("nothing panics while it holds this") = Some(view.clone());
            Ok(is_wanted.then_some(view))
        });
        waited.await.with_context(|| format!("last seen: {last:#?}"))
    }

    /// Everything it logged, for a failed test to show.
    pub fn logs(&self) -> String {
        let mut text = String::new();
        let processes = self.reconciler.iter().chain(self.hosts.values()).chain(self.gateway.iter());
        for process in processes {
            text.push_str(&format!("==== {}\n{}\n", process.log.display(), process.logged()));
        }
        text
    }

    /// Leaves all processes running when this value is dropped.
    pub fn detach(&mut self) {
        let processes =
            self.reconciler.iter_mut().chain(self.hosts.values_mut()).chain(self.gateway.iter_mut());
        processes.for_each(Process::detach);
        self.hosts.clear();
        self.reconciler = None;
        self.gateway = None;
        self.layout.dir = PathBuf::new();
    }

    /// The pids of all processes but engines.
    pub fn pids(&self) -> Vec<u32> {
        self.reconciler
            .iter()
            .chain(self.hosts.values())
            .chain(self.gateway.iter())
            .map(Process::pid)
            .collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.layout.dir.as_os_str().is_empty() {
            return;
        }
        self.gateway = None;
        self.hosts.clear();
        self.reconciler = None;
        // Engines outlive their denvd on purpose; nothing outlives the cluster.
        for (pid, _) in engines_below(&self.layout.dir) {
            let _ = kill_engine(pid);
        }
    }
}

/// 256 random bits, as text.
fn random_text() -> anyhow::Result<String> {
    use std::io::Read as _;
    let mut bytes = [0u8; 32];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(Digest::from_bytes(bytes).to_string().trim_start_matches("sha256:").to_owned())
}
