//! The settings file of several sources (`--sources`): strict, with the place of every fault.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use denv_forge::{Address, InvalidAddress};
use denv_git_transport::{CredentialsPlace, Options};
use denv_schema::Name;
use denv_schema::quantity::Period;
use serde::Deserialize;

use super::deletions::DeletionShare;
use super::secret::SecretReference;
use super::{ForgeConfig, SourceConfig};

#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    #[error("cannot read `{path}` (--sources)")]
    Read { path: PathBuf, source: std::io::Error },
    #[error("cannot tell the forge what becomes of source `{name}`")]
    Forge { name: String, source: InvalidAddress },
    #[error("`{place}`: {fault}")]
    Fault { place: String, fault: String },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    sources: Vec<SourceSettings>,
    /// Sources that are no more, and may take what they had in force with them.
    #[serde(default)]
    forget: Vec<Name>,
}

/// What is followed, and for whom.
#[derive(Debug, Default)]
pub struct Sources {
    pub of_tenant: BTreeMap<Name, Vec<SourceConfig>>,
    /// Sources that are no more, and may take what they had in force with them.
    pub forget: BTreeSet<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SourceSettings {
    name: Name,
    tenant: Option<Name>,
    url: String,
    branch: Option<String>,
    /// The folder of the repository.
    path: Option<String>,
    poll: Option<Period>,
    credentials: Option<Written<SecretReference>>,
    authorities: Option<PathBuf>,
    ssh: Option<SshSettings>,
    webhook_secret: Option<Written<SecretReference>>,
    allowed_signers: Option<PathBuf>,
    signing_key: Option<PathBuf>,
    deletion_share: Option<Written<DeletionShare>>,
    forge: Option<ForgeSettings>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ForgeSettings {
    kind: Written<denv_forge::Kind>,
    api: Option<String>,
    repository: Option<String>,
    token: Written<SecretReference>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SshSettings {
    key: Option<PathBuf>,
    known_hosts: Option<PathBuf>,
}

/// A value in its written form.
#[derive(Clone)]
struct Written<T>(T);

impl<'de, T: std::str::FromStr<Err: std::fmt::Display>> Deserialize<'de> for Written<T> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Written).map_err(serde::de::Error::custom)
    }
}

/// The sources of a settings file. Mirrors are kept below `mirrors`.
pub fn read(path: &Path, mirrors: &Path) -> Result<Sources, SettingsError> {
    let text =
        fs::read_to_string(path).map_err(|source| SettingsError::Read { path: path.to_owned(), source })?;
    parse(&text, &path.display().to_string(), mirrors)
}

fn parse(text: &str, file: &str, mirrors: &Path) -> Result<Sources, SettingsError> {
    let settings: Settings = serde_yaml::from_str(text).map_err(|error| {
        let place = error.location().map(|at| format!(":{}:{}", at.line(), at.column())).unwrap_or_default();
        let said = error.without_snippet().to_string();
        let fault = said.lines().next().unwrap_or_default().to_owned();
        SettingsError::Fault { place: format!("{file}{place}"), fault }
    })?;
    let fault = |fault: String| SettingsError::Fault { place: file.to_owned(), fault };
    if settings.sources.is_empty() {
        return Err(fault("there is no source in it; without one nothing could ever run".to_owned()));
    }
    let mut names = BTreeSet::new();
    let mut tenants: BTreeMap<Name, Vec<SourceConfig>> = BTreeMap::new();
    for source in settings.sources {
        // Hooks and mirrors know a source by its name alone.
        if !names.insert(source.name.clone()) {
            return Err(fault(format!(
                "there are two sources `{}`; names are unique, across tenants too",
                source.name
            )));
        }
        let tenant = source.tenant.clone().unwrap_or_else(denv_link::identity::tenant);
        tenants.entry(tenant).or_default().push(source.config(mirrors)?);
    }
    let forget = settings.forget.iter().map(Name::to_string).collect();
    Ok(Sources { of_tenant: tenants, forget })
}

const POLL: Period = Period::from_secs(15);

impl SourceSettings {
    fn config(self, mirrors: &Path) -> Result<SourceConfig, SettingsError> {
        let forge = self.forge.map(|forge| {
            let address =
                Address::new(forge.kind.0, &self.url, forge.api.as_deref(), forge.repository.as_deref());
            let invalid = |source| SettingsError::Forge { name: self.name.to_string(), source };
            Ok(ForgeConfig { address: address.map_err(invalid)?, token: forge.token.0 })
        });
        let credentials = self.credentials.map(|Written(reference)| match reference {
            SecretReference::File(path) => CredentialsPlace::File(path),
            SecretReference::Environment(name) => CredentialsPlace::Environment(name),
        });
        let remote = Options {
            authorities: self.authorities,
            credentials,
            ssh_command: self.ssh.map(|ssh| ssh.command()),
            ..Options::default()
        };
        Ok(SourceConfig {
            forge: forge.transpose()?,
            mirror: mirrors.join(self.name.as_str()),
            name: self.name.to_string(),
            url: self.url,
            branch: self.branch.unwrap_or_else(|| "main".to_owned()),
            folder: self.path.unwrap_or_default(),
            poll: self.poll.unwrap_or(POLL).get(),
            remote: Arc::new(remote),
            allowed_signers: self.allowed_signers,
            signing_key: self.signing_key,
            webhook_secret: self.webhook_secret.map(|Written(reference)| reference),
            deletion_share: self.deletion_share.map_or(DeletionShare::DEFAULT, |Written(share)| share),
        })
    }
}

impl SshSettings {
    /// As a person would write it in GIT_SSH_COMMAND. A key that is named is the only one that is offered, and hosts
    /// that are listed are the only ones that are believed.
    fn command(&self) -> String {
        let mut command = "ssh".to_owned();
        let quoted = |path: &Path| format!("'{}'", path.display().to_string().replace('\'', "'\\''"));
        if let Some(key) = &self.key {
            command += &format!(" -i {} -o IdentitiesOnly=yes", quoted(key));
        }
        if let Some(hosts) = &self.known_hosts {
            // ssh reads this option's value once more, as words.
            command += &format!(
                " -o UserKnownHostsFile={} -o GlobalKnownHostsFile=/dev/null -o StrictHostKeyChecking=yes",
                quoted(Path::new(&format!("\"{}\"", hosts.display())))
            );
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<BTreeMap<Name, Vec<SourceConfig>>, String> {
        let read = parse(text, "sources.yaml", Path::new("/state/mirrors"));
        read.map(|sources| sources.of_tenant).map_err(|error| error.to_string())
    }

    #[test]
    fn every_setting_is_read() {
        let tenants = read(
            "sources:
  - name: serving
    tenant: acme
    url: https://git.example.com/ml/serving.git
    branch: live
    path: clusters/fra
    poll: 1m
    credentials: env:GIT_TOKEN
    authorities: /etc/denv/ca.pem
    webhookSecret: file:/etc/denv/hook
    allowedSigners: /etc/denv/signers
    signingKey: /etc/denv/signing-key
    deletionShare: 10%
    forge: {kind: gitlab, token: env:FORGE_TOKEN}
  - name: capacity
    tenant: acme
    url: git@git.example.com:ml/capacity.git
    ssh: {key: /etc/denv/it's, knownHosts: /etc/denv/known hosts}
  - {name: lab, url: /srv/lab.git}
",
        )
        .unwrap();
        assert_eq!(tenants.keys().map(Name::as_str).collect::<Vec<_>>(), ["acme", "default"]);
        let acme = &tenants[&"acme".parse::<Name>().unwrap()];
        let SourceConfig { branch, folder, poll, mirror, remote, webhook_secret, deletion_share, .. } =
            &acme[0];
        assert_eq!((branch.as_str(), folder.as_str(), poll.as_secs()), ("live", "clusters/fra", 60));
        assert_eq!(mirror, Path::new("/state/mirrors/serving"));
        assert_eq!(acme[0].forge.as_ref().unwrap().address.api, "https://git.example.com/api/v4");
        assert_eq!(remote.credentials, Some(CredentialsPlace::Environment("GIT_TOKEN".to_owned())));
        assert_eq!(webhook_secret, &Some(SecretReference::File("/etc/denv/hook".into())));
        assert_eq!(deletion_share.to_string(), "10%");
        assert_eq!(acme[0].allowed_signers.as_deref(), Some(Path::new("/etc/denv/signers")));
        assert_eq!(acme[0].signing_key.as_deref(), Some(Path::new("/etc/denv/signing-key")));
        assert_eq!(
            acme[1].remote.ssh_command.as_deref(),
            Some(
                r#"ssh -i '/etc/denv/it'\''s' -o IdentitiesOnly=yes -o UserKnownHostsFile='"/etc/denv/known hosts"' -o GlobalKnownHostsFile=/dev/null -o StrictHostKeyChecking=yes"#
            )
        );
        assert_eq!(acme[1].branch, "main");
    }

    #[test]
    fn faults_are_named_with_their_place() {
        for (text, said) in [
            (
                "sources:\n  - name: a\n    url: x\n    brunch: main\n",
                "`sources.yaml:4:5`: unknown field `brunch`",
            ),
            ("sources:\n  - name: a\n    url: x\n    credentials: hunter2\n", "sources.yaml:4:"),
            ("sources:\n  - name: a\n    url: x\n    deletionShare: 30\n", "sources.yaml:4:"),
            ("sources:\n  - name: a\n", "missing field `url`"),
            ("sources: []\n", "`sources.yaml`: there is no source in it"),
            (
                "sources:\n  - {name: a, url: x}\n  - {name: a, tenant: b, url: y}\n",
                "there are two sources `a`",
            ),
            ("sources:\n  - {name: A b, url: x}\n", "sources.yaml:2:"),
            ("sources: {", "sources.yaml:1:"),
        ] {
            let fault = read(text).err().unwrap();
            assert!(fault.contains(said), "{text}: {fault}");
            assert!(!fault.contains("hunter2"), "{fault}");
        }
    }
}
