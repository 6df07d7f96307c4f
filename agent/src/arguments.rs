//! The command line of denvd.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use denv_schema::{InvalidName, Name};

use crate::reclaim::NoticeSource;

/// Runs inference engines on this host as the control plane says.
#[derive(Debug, Parser)]
#[command(name = "denvd", version, after_help = EXAMPLES)]
pub struct Arguments {
    /// What to do; the only verb is `run`, and it may be left out.
    #[arg(value_enum, default_value_t = Verb::Run, hide_default_value = true)]
    pub verb: Verb,

    /// The control plane's address for hosts.
    #[arg(long, env = "DENV_LINK", value_name = "HOST:PORT", value_parser = host_and_port)]
    pub server: String,

    /// A one-time join token, from `denv host token NAME`. Not needed once the host has joined. A file
    /// (`--token-file`) or the environment keeps it out of process lists.
    #[arg(long, env = "DENV_JOIN_TOKEN", value_name = "TOKEN", hide_env_values = true)]
    pub token: Option<String>,

    /// A file that holds the join token.
    #[arg(long, env = "DENV_JOIN_TOKEN_FILE", value_name = "FILE", conflicts_with = "token")]
    pub token_file: Option<PathBuf>,

    /// Holds the host's certificate, its journal and the engines' logs.
    #[arg(long, env = "DENV_STATE_DIR", value_name = "DIR", default_value = "/var/lib/denvd")]
    pub state_dir: PathBuf,

    /// Where gateways are let in.
    #[arg(long, env = "DENV_INGRESS_LISTEN", value_name = "ADDRESS:PORT", default_value = "0.0.0.0:7443")]
    pub ingress_listen: SocketAddr,

    /// Where gateways find the ingress. By default the listening address, or the host's name when that is a
    /// wildcard.
    #[arg(long, env = "DENV_INGRESS_ADVERTISE", value_name = "HOST:PORT", value_parser = host_and_port)]
    pub ingress_advertise: Option<String>,

    /// Folders in which engines' programs are looked for before PATH.
    #[arg(long, env = "DENV_ENGINE_PATH", value_name = "DIR[:DIR]", value_delimiter = ':')]
    pub engine_path: Vec<PathBuf>,

    /// Where weights with a relative `file:` source are, and below which others are fetched to, at `fetched/`. By default
    /// `weights/` in the state folder.
    #[arg(long, env = "DENV_WEIGHTS_DIR", value_name = "DIR")]
    pub weights_dir: Option<PathBuf>,

    /// The host's hardware (YAML or JSON), used where there is no NVML.
    #[arg(long, env = "DENV_INVENTORY", value_name = "FILE")]
    pub inventory: Option<PathBuf>,

    /// The scale-up domain that this host belongs to, for example its rack; a Host manifest's `domain` wins. Nothing: the
    /// host by itself.
    #[arg(long, env = "DENV_DOMAIN", value_name = "NAME", value_parser = name_or_nothing)]
    pub domain: Option<PlaceName>,

    /// What fails together with this host, for example its row or availability zone; a Host manifest's `failureDomain` wins.
    #[arg(long, env = "DENV_FAILURE_DOMAIN", value_name = "NAME", value_parser = name_or_nothing)]
    pub failure_domain: Option<PlaceName>,

    /// Where the provider announces that it takes the host back: a file, or an address of its metadata service. By
    /// default nobody looks.
    #[arg(long, env = "DENV_RECLAIM_NOTICE", value_name = "FILE|URL")]
    pub reclaim_notice: Option<NoticeSource>,

    /// The form of the log on standard error. RUST_LOG chooses what is in it.
    #[arg(long, env = "DENV_LOG_FORMAT", value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Verb {
    Run,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}

/// The name of a place, or nothing: what fills in variables from labels leaves them empty where there is no label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceName(pub Option<Name>);

fn name_or_nothing(text: &str) -> Result<PlaceName, InvalidName> {
    if text.is_empty() { Ok(PlaceName(None)) } else { text.parse().map(|name| PlaceName(Some(name))) }
}

/// A name is looked up each time it is dialled, so only its form is checked here.
fn host_and_port(text: &str) -> Result<String, String> {
    let (host, port) = text.rsplit_once(':').ok_or("write it as HOST:PORT")?;
    match port.parse::<u16>() {
        Ok(port) if port > 0 && !host.is_empty() && !host.contains('/') => Ok(text.to_owned()),
        _ => Err("write it as HOST:PORT".to_owned()),
    }
}

const EXAMPLES: &str = "\
Examples:
  The first time, with a token from `denv host token gpu-1`:
    denvd --server denv.example.com:7442 --token-file token --engine-path /opt/engines/bin

  From then on; the certificate in the state folder renews itself:
    denvd --server denv.example.com:7442 --engine-path /opt/engines/bin --weights-dir /srv/models

  A second host on the same machine, to try denv out:
    denvd --server 127.0.0.1:7442 --token-file token-2 --state-dir ./host-2 \\
          --ingress-listen 127.0.0.1:7444 --inventory inventory.yaml

  A spot host of AWS, and one of Google's:
    denvd … --reclaim-notice http://169.254.169.254/latest/meta-data/spot/instance-action
    denvd … --reclaim-notice http://metadata.google.internal/computeMetadata/v1/instance/preempted

Ending denvd (SIGTERM) leaves the engines running; the next denvd adopts them. A systemd unit needs
KillMode=process for that.";

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_verb_may_be_left_out() {
        Arguments::command().debug_assert();
        for line in ["denvd run --server a:1", "denvd --server a:1"] {
            let arguments = Arguments::try_parse_from(line.split(' ')).unwrap();
            assert_eq!((arguments.verb, arguments.server.as_str()), (Verb::Run, "a:1"));
        }
        let paths = "denvd --server a:1 --engine-path /a:/b";
        assert_eq!(Arguments::try_parse_from(paths.split(' ')).unwrap().engine_path.len(), 2);
        for bad in ["a", "a:b", ":1", "a:0", "http://a:1"] {
            assert!(Arguments::try_parse_from(["denvd", "--server", bad]).is_err(), "{bad}");
        }
        assert!(Arguments::try_parse_from(["denvd", "walk", "--server", "a:1"]).is_err());
    }

    #[test]
    fn a_place_without_a_name_is_none() {
        let parse = |name: &str| {
            Arguments::try_parse_from(["denvd", "--server", "a:1", "--domain", name])
                .map(|it| it.domain.unwrap().0)
        };
        assert_eq!(parse("").unwrap(), None);
        assert_eq!(parse("rack-7").unwrap().unwrap().as_str(), "rack-7");
        assert!(parse("Rack 7").is_err());
    }
}
