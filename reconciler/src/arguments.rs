//! The command line.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Parser, ValueEnum};
use denv_forge::Address;
use denv_git_transport::{CredentialsPlace, Options};
use denv_reconciler::source::settings::{self, SettingsError, Sources};
use denv_reconciler::source::{DeletionShare, ForgeConfig, SecretReference, SourceConfig};
use denv_schema::quantity::Period;

/// denv's control plane: watches a Git repository of manifests and makes the hosts run what it says.
#[derive(Debug, Parser)]
#[command(
    name = "denv-reconciler",
    version,
    after_help = "Examples:
  Watch a repository; hosts and gateways dial in on port 7442:
    denv-reconciler --source https://git.example.com/ml/serving.git --link-listen 0.0.0.0:7442

  Several repositories, for several tenants:
    denv-reconciler --sources /etc/denv/sources.yaml

  Try it on one machine:
    denv-reconciler --source ./config --state-dir ./state

The first start makes STATE-DIR/admin-token; `denv` sends it (DENV_TOKEN_FILE)."
)]
pub(crate) struct Arguments {
    /// The repository: a path, https://…, ssh://… or git@HOST:PATH
    #[arg(
        long,
        env = "DENV_SOURCE",
        hide_env_values = true,
        value_name = "URL",
        required_unless_present = "sources",
        conflicts_with = "sources"
    )]
    source: Option<String>,

    /// A file (YAML) that lists several sources, each with its tenant, in place of --source and what goes with it
    #[arg(long, env = "DENV_SOURCES", value_name = "FILE")]
    sources: Option<PathBuf>,

    /// The branch to follow
    #[arg(long, env = "DENV_SOURCE_BRANCH", default_value = "main")]
    source_branch: String,

    /// The folder of the repository that holds the manifests [default: all of it]
    #[arg(
        long,
        env = "DENV_SOURCE_FOLDER",
        default_value = "",
        hide_default_value = true,
        value_name = "FOLDER"
    )]
    source_folder: String,

    /// Certificates (PEM) of a private authority to trust for an https source, besides the system's
    #[arg(long, env = "DENV_SOURCE_CA", value_name = "FILE")]
    source_ca: Option<PathBuf>,

    /// A file that holds `user:password`, or a token, for an https source; read anew at each look
    #[arg(long, env = "DENV_SOURCE_CREDENTIALS", value_name = "FILE")]
    source_credentials: Option<PathBuf>,

    /// What to run in place of `ssh` for an ssh source, as Git does: `ssh -i FILE`
    #[arg(long, env = "GIT_SSH_COMMAND", hide_env_values = true, value_name = "COMMAND")]
    source_ssh_command: Option<String>,

    /// Who may sign commits, as in Git's `gpg.ssh.allowedSignersFile`; with it, every new commit must be signed. Read
    /// anew at each look
    #[arg(long, env = "DENV_SOURCE_ALLOWED_SIGNERS", value_name = "FILE")]
    source_allowed_signers: Option<PathBuf>,

    /// The SSH key (without a passphrase) that signs commits which denv makes for people who apply
    #[arg(long, env = "DENV_SOURCE_SIGNING_KEY", value_name = "FILE")]
    source_signing_key: Option<PathBuf>,

    /// The secret that the forge signs its push hooks with: file:PATH or env:NAME. Hooks go to
    /// /v1/webhooks/SOURCE-NAME of the API
    #[arg(long, env = "DENV_SOURCE_WEBHOOK_SECRET", value_name = "REFERENCE")]
    source_webhook_secret: Option<SecretReference>,

    /// The forge to tell what becomes of each commit: github, gitlab or gitea (Forgejo too)
    #[arg(long, env = "DENV_SOURCE_FORGE", requires = "source_forge_token", value_name = "KIND")]
    source_forge: Option<denv_forge::Kind>,

    /// A token that may set commit statuses there: file:PATH or env:NAME
    #[arg(long, env = "DENV_SOURCE_FORGE_TOKEN", requires = "source_forge", value_name = "REFERENCE")]
    source_forge_token: Option<SecretReference>,

    /// Where the forge's API is [default: from --source]
    #[arg(long, env = "DENV_SOURCE_FORGE_API", requires = "source_forge", value_name = "URL")]
    source_forge_api: Option<String>,

    /// The repository's name on the forge [default: from --source]
    #[arg(long, env = "DENV_SOURCE_FORGE_REPOSITORY", requires = "source_forge", value_name = "OWNER/NAME")]
    source_forge_repository: Option<String>,

    /// A revision that deletes more than this share of units, hosts, customers or keys waits for `denv source approve`
    #[arg(long, env = "DENV_SOURCE_DELETION_SHARE", default_value = "30%", value_name = "PERCENT")]
    source_deletion_share: DeletionShare,

    /// The name under which the source is shown
    #[arg(long, env = "DENV_SOURCE_NAME", default_value = "main")]
    source_name: String,

    /// A source by another name that is no more, and may take what it had in force with it
    #[arg(long, value_name = "NAME")]
    source_forget: Vec<String>,

    /// A secret of this process that manifests of any tenant may refer to, for example the key of an API that a parity suite
    /// asks: env:NAME or file:/PATH. Without it they may refer to none
    #[arg(long, env = "DENV_MANIFEST_SECRETS", value_delimiter = ',', value_name = "REFERENCE")]
    pub(crate) manifest_secret: Vec<denv_schema::secret::SecretReference>,

    /// How often to look at the repository; `denv source refresh` (a hook) makes it look at once
    #[arg(long, env = "DENV_POLL", default_value = "15s", value_name = "PERIOD")]
    poll: Period,

    /// Where records, keys and the mirror are kept
    #[arg(long, env = "DENV_STATE_DIR", default_value = "/var/lib/denv-reconciler", value_name = "DIR")]
    pub(crate) state_dir: PathBuf,

    /// Where hosts and gateways dial in, over mutual TLS
    #[arg(long, env = "DENV_LINK_LISTEN", default_value = "127.0.0.1:7442", value_name = "ADDR:PORT")]
    pub(crate) link_listen: SocketAddr,

    /// Where the HTTP API listens; anything but loopback needs TLS
    #[arg(long, env = "DENV_API_LISTEN", default_value = "127.0.0.1:7440", value_name = "ADDR:PORT")]
    pub(crate) api_listen: SocketAddr,

    /// Certificate chain of the API, PEM
    #[arg(long, env = "DENV_API_TLS_CERTIFICATE", requires = "api_tls_key", value_name = "FILE")]
    pub(crate) api_tls_certificate: Option<PathBuf>,

    /// Private key of the API's certificate, PEM
    #[arg(long, env = "DENV_API_TLS_KEY", requires = "api_tls_certificate", value_name = "FILE")]
    pub(crate) api_tls_key: Option<PathBuf>,

    /// How long the certificates of hosts and gateways last; they renew them in time
    #[arg(long, env = "DENV_CERTIFICATE_LIFETIME", default_value = "1d", value_name = "PERIOD")]
    pub(crate) certificate_lifetime: Period,

    /// How to write the log, to standard error; RUST_LOG filters it
    #[arg(long, env = "DENV_LOG_FORMAT", default_value = "text")]
    pub(crate) log_format: LogFormat,
}

impl Arguments {
    /// The sources of each tenant: those of the file, or the one that the flags describe.
    pub(crate) fn sources(&self) -> Result<Sources, SettingsError> {
        if let Some(file) = &self.sources {
            return settings::read(file, &self.state_dir.join("mirrors"));
        }
        let remote = Options {
            authorities: self.source_ca.clone(),
            credentials: self.source_credentials.clone().map(CredentialsPlace::File),
            ssh_command: self.source_ssh_command.clone(),
            ..Options::default()
        };
        let url = self.source.clone().unwrap_or_default();
        let forge = self.source_forge.zip(self.source_forge_token.clone()).map(|(kind, token)| {
            let (api, repository) =
                (self.source_forge_api.as_deref(), self.source_forge_repository.as_deref());
            let invalid = |source| SettingsError::Forge { name: self.source_name.clone(), source };
            let address = Address::new(kind, &url, api, repository).map_err(invalid)?;
            Ok(ForgeConfig { address, token })
        });
        let config = SourceConfig {
            forge: forge.transpose()?,
            name: self.source_name.clone(),
            url,
            branch: self.source_branch.clone(),
            folder: self.source_folder.clone(),
            mirror: self.state_dir.join("mirror"),
            poll: self.poll.get(),
            remote: Arc::new(remote),
            webhook_secret: self.source_webhook_secret.clone(),
            allowed_signers: self.source_allowed_signers.clone(),
            signing_key: self.source_signing_key.clone(),
            deletion_share: self.source_deletion_share,
        };
        Ok(Sources {
            of_tenant: BTreeMap::from([(denv_link::identity::tenant(), vec![config])]),
            forget: self.source_forget.iter().cloned().collect(),
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}
