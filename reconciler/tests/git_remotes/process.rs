//! The reconciler as a process, and what can be seen of it.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use denv_schema::api::{List, SourceView};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// What is waited for, so that a hang is a failure.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Reconciler {
    child: Child,
    dir: PathBuf,
    api: String,
    pub(crate) link: String,
    http: reqwest::Client,
}

impl Reconciler {
    /// Starts in `dir` on this source; it looks at once, and then only when it is asked.
    pub(crate) async fn start(dir: &Path, source: &str, with: &[(&str, &Path)]) -> Self {
        Self::start_with(dir, source, |command| {
            for (flag, value) in with {
                command.arg(flag).arg(value);
            }
        })
        .await
    }

    pub(crate) async fn start_with(dir: &Path, source: &str, set: impl FnOnce(&mut Command)) -> Self {
        Self::start_on(dir, |command| {
            command.args(["--source", source, "--poll", "1h"]);
            set(command);
        })
        .await
    }

    /// Starts in `dir`, on what `set` says.
    pub(crate) async fn start_on(dir: &Path, set: impl FnOnce(&mut Command)) -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let (api, link) = (free_address(), free_address());
        let log = fs::File::create(dir.join("log")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_denv-reconciler"));
        command
            .args(["--api-listen", &api, "--link-listen", &link])
            .arg("--state-dir")
            .arg(dir.join("state"))
            .env("RUST_LOG", "debug")
            .env_remove("GIT_SSH_COMMAND")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        set(&mut command);
        let child = command.spawn().unwrap();
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let reconciler = Reconciler { child, dir: dir.to_owned(), api, link, http };
        let until = Instant::now() + PATIENCE;
        while reconciler.http.get(reconciler.url("/metrics")).send().await.is_err() {
            assert!(Instant::now() < until, "it did not start: {}", reconciler.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        reconciler
    }

    /// Has it look now; what it saw.
    pub(crate) async fn look(&self) -> SourceView {
        let request = self.http.post(self.url("/v1/sources/main/refresh")).bearer_auth(self.token());
        request.timeout(PATIENCE).send().await.unwrap().error_for_status().unwrap().json().await.unwrap()
    }

    /// How the source stands, without a look.
    pub(crate) async fn source(&self) -> SourceView {
        let request = self.http.get(self.url("/v1/sources")).bearer_auth(self.token());
        let list: List<SourceView> = request.send().await.unwrap().json().await.unwrap();
        list.items.into_iter().next().unwrap()
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> T {
        let request = self.http.get(self.url(path)).bearer_auth(self.token());
        request.send().await.unwrap().error_for_status().unwrap().json().await.unwrap()
    }

    pub(crate) async fn status(&self, path: &str) -> reqwest::StatusCode {
        self.http.get(self.url(path)).bearer_auth(self.token()).send().await.unwrap().status()
    }

    /// A request that changes something.
    pub(crate) async fn ask<T: DeserializeOwned>(&self, path: &str) -> T {
        self.ask_with(path, &serde_json::json!({})).await
    }

    pub(crate) async fn ask_with<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> T {
        let request = self.http.post(self.url(path)).bearer_auth(self.token()).json(body);
        let answer = request.timeout(PATIENCE).send().await.unwrap();
        answer.error_for_status().unwrap().json().await.unwrap()
    }

    /// What it says where it does not do what is asked.
    pub(crate) async fn refusal<T: Serialize>(&self, path: &str, body: &T) -> (reqwest::StatusCode, String) {
        let request = self.http.post(self.url(path)).bearer_auth(self.token()).json(body);
        let answer = request.timeout(PATIENCE).send().await.unwrap();
        let status = answer.status();
        let body: serde_json::Value = answer.json().await.unwrap();
        assert!(!status.is_success(), "{body}");
        (status, body["error"]["message"].as_str().unwrap().to_owned())
    }

    /// What a request that changes something is answered with.
    pub(crate) async fn status_of(&self, path: &str, body: &impl Serialize) -> reqwest::StatusCode {
        let request = self.http.post(self.url(path)).bearer_auth(self.token()).json(body);
        request.timeout(PATIENCE).send().await.unwrap().status()
    }

    /// A request without a token.
    pub(crate) fn post(&self, path: &str) -> reqwest::RequestBuilder {
        self.http.post(self.url(path)).timeout(PATIENCE)
    }

    /// The commit in force after a look, which found no problem.
    pub(crate) async fn accepted(&self) -> String {
        let view = self.look().await;
        assert_eq!(view.problem, None);
        view.accepted.unwrap().commit
    }

    /// Why the newest revision is refused, after a look, which found no problem.
    pub(crate) async fn refused(&self, commit: &str) -> String {
        let view = self.look().await;
        assert_eq!(view.problem, None);
        let refused = view.refused.unwrap();
        assert_eq!(refused.revision.commit, commit);
        refused.reason
    }

    /// Why the remote can't be read, after a look.
    pub(crate) async fn problem(&self) -> String {
        self.look().await.problem.unwrap()
    }

    /// Everything it shows, logs and keeps.
    pub(crate) async fn everything(&self) -> Vec<u8> {
        let mut all = fs::read(self.dir.join("log")).unwrap();
        for path in
            ["/v1/sources", "/v1/events", "/v1/stages", "/v1/manifests/customer", "/metrics", "/healthz"]
        {
            let request = self.http.get(self.url(path)).bearer_auth(self.token());
            all.extend(request.send().await.unwrap().bytes().await.unwrap());
        }
        let mut folders = vec![self.dir.join("state")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    all.extend(fs::read(path).unwrap());
                }
            }
        }
        let command_line = fs::read(format!("/proc/{}/cmdline", self.child.id())).unwrap();
        all.extend(command_line);
        all
    }

    pub(crate) fn mirror(&self) -> PathBuf {
        self.dir.join("state/mirror")
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.dir.join("log")).unwrap()
    }

    /// Open files and threads: what a leak would add to.
    pub(crate) fn held(&self) -> (usize, usize) {
        let count = |of: &str| fs::read_dir(format!("/proc/{}/{of}", self.child.id())).unwrap().count();
        (count("fd"), count("task"))
    }

    /// Processes that it started and has not waited for.
    pub(crate) fn children(&self) -> usize {
        let id = self.child.id();
        let tasks = fs::read_dir(format!("/proc/{id}/task")).unwrap();
        let of_task =
            |task: fs::DirEntry| fs::read_to_string(task.path().join("children")).unwrap_or_default();
        tasks.map(|task| of_task(task.unwrap()).split_whitespace().count()).sum()
    }

    fn token(&self) -> String {
        fs::read_to_string(self.dir.join("state/admin-token")).unwrap().trim().to_owned()
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.api)
    }
}

impl Drop for Reconciler {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}
