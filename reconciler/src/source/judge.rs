//! Whether a revision is accepted: as a whole, or not at all.

use std::collections::BTreeMap;
use std::sync::Arc;

use denv_schema::api::short;
use denv_schema::diagnostic::counted;
use denv_schema::tree::Files;
use denv_schema::{Catalog, Diagnostic, Diagnostics, Digest, Name};

use super::deletions::{self, DeletionShare};
use super::mirror::{Mirror, MirrorError};
use super::shelf::Content;
use super::signers::AllowedSigners;
use super::{HeldBack, SourceConfig};
use crate::store::{Revision, Verdict};

pub(super) enum Judged {
    Accepted {
        revision: Revision,
        catalog: Arc<Catalog>,
        /// What the shelf is to keep.
        files: Files,
    },
    HeldBack(HeldBack),
}

/// What a revision is judged by, besides itself.
pub(super) struct Ground<'a> {
    /// What the tenant's sources have in force.
    pub(super) shelf: &'a Content,
    /// The commit in force.
    pub(super) accepted: Option<&'a str>,
    /// What it means.
    pub(super) in_force: Option<Arc<Catalog>>,
    /// Releases that have run, which may not read otherwise.
    pub(super) deployed: &'a BTreeMap<Name, Digest>,
    /// Whose signatures count, where signatures are demanded.
    pub(super) signers: Option<&'a AllowedSigners>,
    pub(super) share: DeletionShare,
    /// A person has approved what the revision deletes.
    pub(super) approved: bool,
}

pub(super) fn judge(
    mirror: &Mirror,
    config: &SourceConfig,
    head: &str,
    ground: &Ground<'_>,
) -> Result<Judged, MirrorError> {
    let view = mirror.revision(head)?;
    let revision = |reason: String, diagnostics| Revision {
        view: view.clone(),
        reason,
        diagnostics,
        deletions: Vec::new(),
    };
    let refuse = |reason: String, diagnostics| {
        let revision = revision(reason, diagnostics);
        Ok(Judged::HeldBack(HeldBack { verdict: Verdict::Refused, revision }))
    };
    if let Some(reason) = rewound(mirror, head, ground.accepted)? {
        return refuse(reason, Diagnostics::default());
    }
    if let Some(signers) = ground.signers
        && let Some(reason) = unsigned(mirror, head, ground.accepted, signers)?
    {
        return refuse(reason, Diagnostics::default());
    }
    let (files, mut unreadable) = manifests(mirror, config, head, ground)?;
    if files.is_empty() && unreadable.is_empty() {
        let place = if config.folder.is_empty() {
            "the repository".to_owned()
        } else {
            format!("`{}`", config.folder)
        };
        // Nothing at all is far likelier a slip than the wish to stop everything.
        let reason = format!("no manifests (`.yaml`, `.yml`) in {place}; nothing is removed for that");
        return refuse(reason, Diagnostics::default());
    }
    let (all, files) = together(config, files, ground)?;
    let found = match ground.shelf.read(&all).catalog(ground.deployed) {
        Ok(catalog) if unreadable.is_empty() => {
            let in_force = in_force(mirror, config, ground)?;
            let deletions = match in_force {
                Some(in_force) if !ground.approved => deletions::large(&in_force, &catalog, ground.share),
                _ => Vec::new(),
            };
            let mut revision = revision(String::new(), Diagnostics::default());
            if deletions.is_empty() {
                return Ok(Judged::Accepted { revision, catalog: Arc::new(catalog), files });
            }
            revision.reason = deletions::said(&deletions);
            revision.deletions = deletions;
            return Ok(Judged::HeldBack(HeldBack { verdict: Verdict::Awaiting, revision }));
        }
        Ok(_) => unreadable,
        Err(found) => {
            found.iter().for_each(|diagnostic| unreadable.push(diagnostic.clone()));
            unreadable
        }
    };
    let faults = counted(found.len(), "fault");
    let first = found.iter().next().map(ToString::to_string).unwrap_or_default();
    let first = first.lines().next().unwrap_or_default().to_owned();
    refuse(format!("{faults} in its manifests, the first: {first}"), found)
}

fn rewound(mirror: &Mirror, head: &str, accepted: Option<&str>) -> Result<Option<String>, MirrorError> {
    let Some(accepted) = accepted else { return Ok(None) };
    if mirror.descends(head, accepted)? {
        return Ok(None);
    }
    Ok(Some(format!(
        "history was rewritten: it does not come after {}, which is in force; push a commit on top of that one",
        short(accepted)
    )))
}

/// Every commit that the revision brings is to be signed, not only its head: whoever pulls and signs on top of what
/// another pushed has not read it. Before the first accepted revision, its head stands for its past.
fn unsigned(
    mirror: &Mirror,
    head: &str,
    accepted: Option<&str>,
    signers: &AllowedSigners,
) -> Result<Option<String>, MirrorError> {
    let commits = mirror.incoming(head, accepted)?;
    let (mut count, mut first) = (0, None);
    for commit in &commits {
        let signed = mirror.signed(commit)?;
        let verified = signers.verify(signed.signature.as_deref(), &signed.text, signed.committed);
        if let Err(why) = verified {
            count += 1;
            first.get_or_insert_with(|| format!("{}: {why}", short(commit)));
        }
    }
    Ok(first.map(|first| {
        let anew = match accepted {
            Some(accepted) => {
                format!("`git rebase --exec 'git commit --amend --no-edit -S' {}`", short(accepted))
            }
            None => "`git commit --amend --no-edit -S`".to_owned(),
        };
        format!(
            "{count} of {} new commits not signed by an allowed signer, the newest {first}; sign with {anew} and push again",
            commits.len()
        )
    }))
}

/// What is in force. Where the mirror was damaged when denv started, it is read now that it is whole again.
fn in_force(
    mirror: &Mirror,
    config: &SourceConfig,
    ground: &Ground<'_>,
) -> Result<Option<Arc<Catalog>>, MirrorError> {
    let (None, Some(accepted)) = (&ground.in_force, ground.accepted) else {
        return Ok(ground.in_force.clone());
    };
    let (files, _) = mirror.files(accepted, &config.folder)?;
    let (all, _) = together(config, files, ground)?;
    Ok(ground.shelf.read(&all).catalog(&BTreeMap::new()).ok().map(Arc::new))
}

/// What the revision holds, with faults in the names that the tenant's files go by.
fn manifests(
    mirror: &Mirror,
    config: &SourceConfig,
    head: &str,
    ground: &Ground<'_>,
) -> Result<(Files, Diagnostics), MirrorError> {
    let (files, found) = ground.shelf.files(&config.name, mirror, head, &config.folder)?;
    let mut unreadable = Diagnostics::default();
    for fault in found.iter() {
        let file = ground.shelf.shown(&config.name, &fault.file);
        unreadable.push(Diagnostic { file, ..fault.clone() });
    }
    Ok((files, unreadable))
}

/// The tenant's files with these, and what the shelf is to keep of these.
fn together(config: &SourceConfig, files: Files, ground: &Ground<'_>) -> Result<(Files, Files), MirrorError> {
    ground.shelf.together(&config.name, files).map_err(|other| MirrorError::Unread { other })
}
