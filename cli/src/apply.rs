//! `denv apply` and `denv delete`: a change of the source repository, made by the control plane in the asker's name.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::{Args, ValueEnum};
use denv_schema::api::short;
use denv_schema::change::{ChangeRequest, ChangeView};
use denv_schema::diff::ManifestKey;
use denv_schema::manifest::Kind;
use denv_schema::quantity::Period;
use denv_schema::tree::Files;
use denv_schema::{StageId, edit};

use crate::client::{Client, ClientError, Connection};
use crate::comparison::text;
use crate::error::Error;
use crate::findings;
use crate::inputs::{Inputs, Read};
use crate::output::{Exit, Format, Output};
use crate::rollout;

/// Make manifests what the source repository says, as one commit in your name
#[derive(Debug, Args)]
#[command(after_help = APPLY_EXAMPLES)]
pub(crate) struct Apply {
    #[command(flatten)]
    inputs: Inputs,

    #[command(flatten)]
    how: How,
}

/// Take manifests out of the source repository, as one commit in your name
#[derive(Debug, Args)]
#[command(after_help = DELETE_EXAMPLES)]
pub(crate) struct Delete {
    /// A kind and the names of manifests of it
    #[arg(value_name = "KIND NAME", num_args = 0.., required_unless_present = "files")]
    names: Vec<String>,

    #[command(flatten)]
    inputs: Inputs,

    #[command(flatten)]
    how: How,
}

/// How a change is made.
#[derive(Debug, Args)]
pub(crate) struct How {
    /// The source to change; needed where there are several
    #[arg(long, value_name = "NAME")]
    source: Option<String>,

    /// The commit's message
    #[arg(short, long)]
    message: Option<String>,

    /// Only if the branch stands at this commit
    #[arg(long, value_name = "COMMIT")]
    if_base: Option<String>,

    /// Push to this branch, for a pull request, and change nothing that runs
    #[arg(long, value_name = "NAME")]
    branch: Option<String>,

    /// Say what would be done: server asks the control plane, client only checks the manifests
    #[arg(long, value_enum, value_name = "WHERE", num_args = 0..=1, default_missing_value = "server")]
    dry_run: Option<DryRun>,

    /// Follow the deployments that it starts, and exit by how they end
    #[arg(long, conflicts_with_all = ["dry_run", "branch"])]
    wait: bool,

    /// How long to follow them
    #[arg(long, value_name = "TIME", default_value = "30m", requires = "wait")]
    timeout: Period,

    /// The form of the answer
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum DryRun {
    Server,
    Client,
}

const APPLY_EXAMPLES: &str = "\
Examples:
  Change what runs, and follow it to its end:
    denv apply -f stage.yaml --wait
  See what it would do:
    denv apply -f stage.yaml --dry-run
  For a pull request:
    denv apply -f stage.yaml --branch longer-context -m 'Double the context'
  What a script made:
    kubectl kustomize overlays/prod | denv apply -f -

Documents that are there are edited in place: their comments, order and style stay.

Exit status: 0 done, 1 refused, or a deployment failed, 2 trouble, 3 not over within --timeout.";

const DELETE_EXAMPLES: &str = "\
Examples:
  denv delete key old-laptop
  denv delete stage chat/canary --dry-run
  denv delete -f old/

Exit status: 0 done, 1 refused, 2 trouble.";

pub(crate) async fn apply(
    arguments: &Apply,
    connection: &Connection,
    output: &mut Output,
) -> Result<Exit, Error> {
    let read = arguments.inputs.read()?;
    let Some(keys) = sound(&read, output) else { return Ok(Exit::No) };
    if arguments.how.dry_run == Some(DryRun::Client) {
        for key in &keys {
            output.say(&format!("{} {} would be sent", key.kind, key.name))?;
        }
        output.note("each manifest is sound by itself; what they mean together, the control plane knows");
        return Ok(Exit::Done);
    }
    let request = ChangeRequest { manifests: texts(&read.files), ..ChangeRequest::default() };
    change(request, &arguments.how, connection, output).await
}

pub(crate) async fn delete(
    arguments: &Delete,
    connection: &Connection,
    output: &mut Output,
) -> Result<Exit, Error> {
    let mut delete = named(&arguments.names)?;
    if !arguments.inputs.is_empty() {
        let Some(keys) = sound(&arguments.inputs.read()?, output) else { return Ok(Exit::No) };
        delete.extend(keys);
    }
    if arguments.how.dry_run == Some(DryRun::Client) {
        for key in &delete {
            output.say(&format!("{} {} would be deleted", key.kind, key.name))?;
        }
        return Ok(Exit::Done);
    }
    change(ChangeRequest { delete, ..ChangeRequest::default() }, &arguments.how, connection, output).await
}

/// What manifests were given, if each is sound by itself; else what is wrong has been said.
fn sound(read: &Read, output: &mut Output) -> Option<Vec<ManifestKey>> {
    let found = match edit::manifests(&read.files) {
        Ok(keys) if read.unreadable.is_empty() => return Some(keys),
        Ok(_) => read.unreadable.clone(),
        Err(found) => read.unreadable.clone().with(&found),
    };
    output.note(&findings::text(&found, &read.files));
    None
}

/// `key one two` names two Keys.
fn named(words: &[String]) -> Result<Vec<ManifestKey>, Error> {
    let Some((kind, names)) = words.split_first() else { return Ok(Vec::new()) };
    let found = Kind::of_word(kind).ok_or_else(|| {
        let kinds = Kind::ALL.iter().map(|kind| kind.as_str().to_lowercase()).collect::<Vec<_>>();
        Error::Usage {
            message: format!("`{kind}` is not a kind"),
            hint: Some(format!("the kinds are {}", kinds.join(", "))),
        }
    })?;
    if names.is_empty() {
        let message = format!("name the {kind} to delete");
        return Err(Error::Usage { message, hint: Some(format!("see `denv get {}`", found.plural())) });
    }
    Ok(names.iter().map(|name| ManifestKey { kind: found, name: name.clone() }).collect())
}

fn texts(files: &Files) -> BTreeMap<String, String> {
    let text =
        |(path, bytes): (&String, &Vec<u8>)| (path.clone(), String::from_utf8_lossy(bytes).into_owned());
    files.iter().map(text).collect()
}

fn files(texts: &BTreeMap<String, String>) -> Files {
    texts.iter().map(|(path, text)| (path.clone(), text.clone().into_bytes())).collect()
}

/// Has it committed, says what was done, and follows it if that is wanted.
pub(crate) async fn change(
    request: ChangeRequest,
    how: &How,
    connection: &Connection,
    output: &mut Output,
) -> Result<Exit, Error> {
    let client = crate::connect(connection, output)?;
    let source = match &how.source {
        Some(source) => source.clone(),
        None => only_source(&client).await?,
    };
    let request = ChangeRequest {
        message: how.message.clone().or(request.message),
        if_base: how.if_base.clone(),
        branch: how.branch.clone(),
        dry_run: how.dry_run.is_some(),
        ..request
    };
    let answer = client.change(&source, &request).await.inspect_err(|error| {
        if let ClientError::Refused { diagnostics, .. } = error
            && !diagnostics.is_empty()
        {
            output.note(&findings::text(diagnostics, &files(&request.manifests)));
        }
    })?;
    let view: ChangeView = answer.read()?;
    match how.output {
        Format::Json => output.json(&answer.0)?,
        Format::Yaml => output.yaml(&answer.0)?,
        Format::Text => tell(&view, how, output)?,
    }
    if how.wait && view.commit.is_some() {
        return follow(&view.stages, how.timeout.get(), &client, output).await;
    }
    Ok(Exit::Done)
}

async fn only_source(client: &Client) -> Result<String, Error> {
    let sources: Vec<denv_schema::api::SourceView> = client.sources().await?.items()?;
    match sources.as_slice() {
        [only] => Ok(only.name.clone()),
        several => {
            let names = several.iter().map(|source| format!("`{}`", source.name)).collect::<Vec<_>>();
            Err(Error::Usage {
                message: "there are several sources".to_owned(),
                hint: Some(format!("choose one with --source: {}", names.join(", "))),
            })
        }
    }
}

fn tell(view: &ChangeView, how: &How, output: &mut Output) -> Result<(), Error> {
    let target = format!("{} of source `{}`", view.branch, view.source);
    let base = format!("{} at {}", target, short(&view.base));
    output.say(&text::diff(&base, "what was given", &view.diff))?;
    for key in &view.rewritten {
        output.warn(&format!("comments in the document of {} {} are lost", key.kind, key.name));
    }
    match &view.commit {
        Some(commit) => output.say(&format!("committed {} to {target}: {}", short(commit), view.message))?,
        None if view.diff.is_empty() => output.say("nothing to change")?,
        None => output.say(&format!("would change {} in {target}", view.files.join(", ")))?,
    }
    if let (Some(_), Some(branch)) = (&view.commit, &how.branch) {
        output.hint(&format!("open a pull request from `{branch}`"));
    } else if let (Some(_), false, [stage, ..]) = (&view.commit, how.wait, view.stages.as_slice()) {
        output.hint(&format!("follow it with `denv rollout status {stage} --watch`"));
    }
    Ok(())
}

/// One stage after the other; the worst outcome counts.
async fn follow(
    stages: &[StageId],
    timeout: Duration,
    client: &Client,
    output: &mut Output,
) -> Result<Exit, Error> {
    let mut worst = Exit::Done;
    for stage in stages {
        let exit = rollout::follow(stage, timeout, client, output).await?;
        if exit as u8 > worst as u8 {
            worst = exit;
        }
    }
    Ok(worst)
}
