//! `denv comment`: one comment on a pull request, made once and then kept up to date.

use std::io::{self, Read as _};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use denv_forge::{Address, Client, Commented, ForgeError, InvalidAddress, Kind};

use crate::error::Error;
use crate::output::{Exit, Output};

/// Put a text on a pull request, as one comment that is kept up to date
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Comment {
    /// The pull or merge request's number
    #[arg(long = "on", value_name = "NUMBER", env = "CI_MERGE_REQUEST_IID")]
    pull_request: u64,

    /// What the comment is known by: another name is another comment
    #[arg(long, default_value = "plan")]
    name: String,

    /// The text, as Markdown; - is standard input
    #[arg(value_name = "FILE", default_value = "-")]
    text: PathBuf,

    /// Which forge; found out in GitHub Actions and GitLab CI
    #[arg(long, value_enum, env = "DENV_FORGE")]
    forge: Option<Forge>,

    /// Where its API is
    #[arg(long, value_name = "URL", env = "DENV_FORGE_API")]
    api: Option<String>,

    /// The repository there
    #[arg(long, value_name = "OWNER/NAME", env = "DENV_FORGE_REPOSITORY")]
    repository: Option<String>,

    /// A file that holds a token which may comment; else DENV_FORGE_TOKEN, else GITHUB_TOKEN
    #[arg(long, value_name = "FILE")]
    forge_token_file: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Forge {
    Github,
    Gitlab,
    /// Also Forgejo
    Gitea,
}

const EXAMPLES: &str = "\
Examples:
  In GitHub Actions (GITHUB_TOKEN needs `pull-requests: write`):
    denv plan HEAD --snapshot world.json -o markdown > plan.md
    denv comment --on ${{ github.event.number }} plan.md
  In GitLab CI (DENV_FORGE_TOKEN is a project token with the scope `api`):
    denv comment plan.md

Exit status: 0 the comment says it, 2 trouble.";

#[derive(Debug, thiserror::Error)]
pub(crate) enum CommentError {
    #[error("cannot read `{path}`")]
    Read { path: PathBuf, source: io::Error },
    #[error("nobody says which forge this is for")]
    NoForge,
    #[error("no token for the forge was given")]
    NoToken,
    #[error(transparent)]
    Address(#[from] InvalidAddress),
    #[error(transparent)]
    Forge(#[from] ForgeError),
}

impl CommentError {
    pub(crate) fn hint(&self) -> Option<String> {
        let hint = match self {
            CommentError::NoForge => "say it with --forge github, gitlab or gitea (or DENV_FORGE)",
            CommentError::NoToken => "give one with --forge-token-file, DENV_FORGE_TOKEN or GITHUB_TOKEN",
            CommentError::Address(_) => {
                "give --api and --repository (or DENV_FORGE_API and DENV_FORGE_REPOSITORY)"
            }
            CommentError::Read { .. } | CommentError::Forge(_) => return None,
        };
        Some(hint.to_owned())
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

pub(crate) async fn run(arguments: &Comment, output: &mut Output) -> Result<Exit, Error> {
    let text = read(&arguments.text)?;
    let client = Client::new(arguments.address()?, arguments.token()?).map_err(CommentError::from)?;
    let done =
        client.comment(arguments.pull_request, &arguments.name, &text).await.map_err(CommentError::from)?;
    let done = match done {
        Commented::Created => "made",
        Commented::Updated => "brought up to date",
        Commented::Unchanged => "left, as it says this already",
    };
    output.note(&format!("the comment `{}` on {} was {done}", arguments.name, arguments.pull_request));
    Ok(Exit::Done)
}

impl Comment {
    fn address(&self) -> Result<Address, CommentError> {
        let (kind, api, repository) = match self.forge {
            Some(Forge::Github) => (Kind::GitHub, "GITHUB_API_URL", "GITHUB_REPOSITORY"),
            Some(Forge::Gitlab) => (Kind::GitLab, "CI_API_V4_URL", "CI_PROJECT_PATH"),
            Some(Forge::Gitea) => (Kind::Gitea, "GITHUB_API_URL", "GITHUB_REPOSITORY"),
            None if variable("GITLAB_CI").is_some() => (Kind::GitLab, "CI_API_V4_URL", "CI_PROJECT_PATH"),
            None if variable("GITEA_ACTIONS").is_some() => {
                (Kind::Gitea, "GITHUB_API_URL", "GITHUB_REPOSITORY")
            }
            None if variable("GITHUB_ACTIONS").is_some() => {
                (Kind::GitHub, "GITHUB_API_URL", "GITHUB_REPOSITORY")
            }
            None => return Err(CommentError::NoForge),
        };
        let api = self.api.clone().or_else(|| variable(api));
        let repository = self.repository.clone().or_else(|| variable(repository));
        Ok(Address::new(kind, "", api.as_deref(), repository.as_deref())?)
    }

    fn token(&self) -> Result<String, CommentError> {
        if let Some(path) = &self.forge_token_file {
            let read = std::fs::read_to_string(path);
            let token = read.map_err(|source| CommentError::Read { path: path.clone(), source })?;
            return Some(token.trim().to_owned())
                .filter(|token| !token.is_empty())
                .ok_or(CommentError::NoToken);
        }
        variable("DENV_FORGE_TOKEN").or_else(|| variable("GITHUB_TOKEN")).ok_or(CommentError::NoToken)
    }
}

fn read(path: &PathBuf) -> Result<String, CommentError> {
    let mut text = String::new();
    let read = if path.as_os_str() == "-" {
        io::stdin().read_to_string(&mut text).map(drop)
    } else {
        std::fs::read_to_string(path).map(|read| text = read)
    };
    read.map(|()| text).map_err(|source| CommentError::Read { path: path.clone(), source })
}
