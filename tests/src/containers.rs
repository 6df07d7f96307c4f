//! podman, and a registry for it to pull from, as `tests/containers/setup.sh` sets them up: each host has images and containers
//! of its own.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, bail};

use crate::process::Process;
use crate::{free_port, programs, until};

/// Below a folder of its own, which goes with it, as do all containers.
pub struct Containers {
    set_up: PathBuf,
    dir: tempfile::TempDir,
    hosts: BTreeSet<String>,
}

/// A registry on loopback, over TLS, by a certificate of the test's own.
pub struct Registry {
    process: Option<Process>,
    dir: PathBuf,
    set_up: PathBuf,
    port: u16,
}

impl Containers {
    /// None, where there is no podman: DENV_CONTAINERS names the folder that it was set up in. An error, where it starts nothing:
    /// it needs root, and a kernel that lets it.
    pub fn create() -> anyhow::Result<Option<Self>> {
        let Some(set_up) = std::env::var_os("DENV_CONTAINERS").map(PathBuf::from) else { return Ok(None) };
        if !set_up.join("bin/podman").exists() {
            return Ok(None);
        }
        let mut containers = Containers { set_up, dir: tempfile::tempdir()?, hosts: BTreeSet::new() };
        containers.import("localhost/engine:probe", "probe")?;
        let entrypoint = "--entrypoint=[\"simulated-engine\"]";
        let run = ["run", "--rm", "--network=host", entrypoint, "localhost/engine:probe", "--help"];
        containers.podman("builder", &run)?;
        Ok(Some(containers))
    }

    /// A folder with the `podman` of `host`, to be put on its engine path.
    pub fn host(&mut self, host: &str) -> anyhow::Result<PathBuf> {
        let (dir, bin) = (self.dir.path().join(host), self.bin(host));
        self.hosts.insert(host.to_owned());
        fs::create_dir_all(&bin)?;
        let script = format!(
            "#!/bin/sh\nSSL_CERT_FILE={} exec {} --root {dir}/root --runroot {dir}/run --tmpdir {dir}/tmp --storage-driver overlay \"$@\"\n",
            self.certificate().display(),
            self.set_up.join("bin/podman").display(),
            dir = dir.display(),
        );
        let path = bin.join("podman");
        fs::write(&path, script)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        Ok(bin)
    }

    fn bin(&self, host: &str) -> PathBuf {
        self.dir.path().join(host).join("bin")
    }

    fn certificate(&self) -> PathBuf {
        self.dir.path().join("registry.pem")
    }

    /// What the podman of `host` prints.
    pub fn podman(&self, host: &str, arguments: &[&str]) -> anyhow::Result<String> {
        output(Command::new(self.bin(host).join("podman")).args(arguments))
    }

    pub async fn registry(&self) -> anyhow::Result<Registry> {
        let (dir, port) = (self.dir.path().join("registry"), free_port()?);
        fs::create_dir_all(&dir)?;
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
        fs::write(self.certificate(), made.cert.pem())?;
        fs::write(dir.join("key.pem"), made.signing_key.serialize_pem())?;
        let config = format!(
            "version: 0.1\nlog: {{level: warn}}\nstorage: {{filesystem: {{rootdirectory: {dir}/data}}}}\nhttp: {{addr: '127.0.0.1:{port}', tls: {{certificate: {}, key: {dir}/key.pem}}}}\n",
            self.certificate().display(),
            dir = dir.display(),
        );
        fs::write(dir.join("config.yaml"), config)?;
        let mut registry = Registry { process: None, dir, set_up: self.set_up.clone(), port };
        registry.open().await?;
        Ok(registry)
    }

    /// Gives `host` no more than so much room for images and containers.
    pub fn limit(&mut self, host: &str, mebibytes: u32) -> anyhow::Result<()> {
        let root = self.dir.path().join(host).join("root");
        fs::create_dir_all(&root)?;
        let options = format!("size={mebibytes}m");
        nix::mount::mount(Some("none"), &root, Some("tmpfs"), nix::mount::MsFlags::empty(), Some(&*options))?;
        Ok(())
    }

    /// An image with the simulated engine, and with `mark` in a file, so that it differs from others. Its name, by digest.
    pub fn push(&mut self, registry: &Registry, name: &str, mark: &str) -> anyhow::Result<String> {
        let tag = format!("{}/{name}:{mark}", registry.address());
        self.import(&tag, mark)?;
        let digest = self.dir.path().join("digest");
        self.podman("builder", &["push", "--quiet", "--digestfile", &digest.display().to_string(), &tag])?;
        Ok(format!("{}/{name}@{}", registry.address(), fs::read_to_string(digest)?.trim()))
    }

    fn import(&mut self, tag: &str, mark: &str) -> anyhow::Result<()> {
        self.host("builder")?;
        let rootfs = self.dir.path().join(format!("rootfs-{mark}"));
        let engine = programs()?.join("simulated-engine");
        for file in libraries(&engine)? {
            let path = rootfs.join(file.strip_prefix("/")?);
            fs::create_dir_all(path.parent().context("a library is in a folder")?)?;
            fs::copy(&file, path)?;
        }
        fs::create_dir_all(rootfs.join("usr/bin"))?;
        fs::copy(&engine, rootfs.join("usr/bin/simulated-engine"))?;
        fs::write(rootfs.join("mark"), mark)?;
        let archive = rootfs.with_extension("tar");
        output(Command::new("tar").arg("-C").arg(&rootfs).arg("-cf").arg(&archive).arg("."))?;
        self.podman("builder", &["import", "--quiet", &archive.display().to_string(), tag])?;
        Ok(())
    }
}

impl Drop for Containers {
    fn drop(&mut self) {
        for host in &self.hosts {
            // What can't be removed shows below, since a folder with a mount in it stays.
            let _ = self.podman(host, &["rm", "--all", "--force", "--time=0"]);
            // It keeps its storage mounted.
            for mounted in ["root/overlay", "root"] {
                let path = self.dir.path().join(host).join(mounted);
                let _ = nix::mount::umount2(&path, nix::mount::MntFlags::MNT_DETACH);
            }
        }
    }
}

impl Registry {
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Nobody answers there from now on.
    pub fn close(&mut self) {
        self.process = None;
    }

    pub async fn open(&mut self) -> anyhow::Result<()> {
        let arguments = ["serve".to_owned(), self.dir.join("config.yaml").display().to_string()];
        let program = self.set_up.join("bin/registry");
        self.process = Some(Process::start("the registry", &program, &arguments, &self.dir.join("log"))?);
        until("the registry to listen", Duration::from_secs(20), || async {
            Ok(std::net::TcpStream::connect(self.address()).ok().map(drop))
        })
        .await
    }
}

/// What a program is linked with, as paths.
fn libraries(program: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let listed = output(Command::new("ldd").arg(program))?;
    let paths = listed.split_whitespace().filter(|word| word.starts_with('/'));
    Ok(paths.map(PathBuf::from).collect())
}

fn output(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
