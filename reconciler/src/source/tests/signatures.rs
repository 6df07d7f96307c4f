//! Where signatures are demanded, nobody else's commit comes into force.

use ssh_key::private::{Ed25519Keypair, KeypairData};
use ssh_key::{HashAlg, LineEnding, PrivateKey};

use super::*;

pub(super) fn key(seed: u8) -> PrivateKey {
    PrivateKey::new(KeypairData::Ed25519(Ed25519Keypair::from_seed(&[seed; 32])), "").unwrap()
}

pub(super) fn allow(dir: &Path, seeds: &[u8]) {
    let lines =
        seeds.iter().map(|seed| format!("signer-{seed} {}\n", key(*seed).public_key().to_openssh().unwrap()));
    std::fs::write(dir.join("allowed"), lines.collect::<String>()).unwrap();
}

/// Replaces the branch's head by the same commit with a signature, as `git commit --amend -S` does.
pub(super) fn sign_head(dir: &Path, seed: u8) -> git2::Oid {
    let repository = Repository::open_bare(dir.join("remote")).unwrap();
    let head = repository.find_reference("refs/heads/main").unwrap().peel_to_commit().unwrap();
    let parents: Vec<_> = head.parents().collect();
    let (author, committer) = (head.author(), head.committer());
    let tree = head.tree().unwrap();
    let message = head.message().unwrap_or_default();
    let parents: Vec<_> = parents.iter().collect();
    let text = repository.commit_create_buffer(&author, &committer, message, &tree, &parents).unwrap();
    let text = std::str::from_utf8(&text).unwrap();
    let signature = key(seed).sign("git", HashAlg::Sha512, text.as_bytes()).unwrap();
    let signature = signature.to_pem(LineEnding::LF).unwrap();
    let oid = repository.commit_signed(text, signature.trim_end(), None).unwrap();
    repository.reference("refs/heads/main", oid, true, "test").unwrap();
    oid
}

async fn start(dir: tempfile::TempDir) -> Bench {
    let allowed = dir.path().join("allowed");
    Bench::start_with(dir, |config| config.allowed_signers = Some(allowed)).await
}

#[tokio::test]
async fn every_new_commit_must_be_signed_by_one_who_is_allowed() {
    let dir = tempfile::tempdir().unwrap();
    allow(dir.path(), &[1]);
    // The past before the first accepted revision needs no signatures, its head does.
    commit(dir.path(), &QUICKSTART, "long ago", None);
    commit(dir.path(), &QUICKSTART, "begin", None);
    let first = sign_head(dir.path(), 1);
    let bench = start(dir).await;
    let view = bench.look().await;
    assert_eq!((view.state, view.problem), (SourceState::Ready, None));

    commit(bench.dir.path(), &QUICKSTART, "unsigned", None);
    let reason = bench.look().await.refused.unwrap().reason;
    assert!(
        reason.starts_with("1 of 1 new commits not signed by an allowed signer, the newest "),
        "{reason}"
    );
    assert!(reason.contains("it is not signed; sign with `git rebase --exec"), "{reason}");

    // A signature on top does not vouch for what another pushed below it.
    commit(bench.dir.path(), &QUICKSTART, "on top", None);
    sign_head(bench.dir.path(), 1);
    let reason = bench.look().await.refused.unwrap().reason;
    assert!(reason.starts_with("1 of 2 new commits not signed"), "{reason}");

    // A merge brings both of its sides.
    let side = commit(bench.dir.path(), &QUICKSTART, "side", Some(first));
    commit(bench.dir.path(), &QUICKSTART, "main", Some(first));
    let ours = sign_head(bench.dir.path(), 1);
    merge(bench.dir.path(), ours, side);
    sign_head(bench.dir.path(), 1);
    let reason = bench.look().await.refused.unwrap().reason;
    assert!(reason.starts_with("1 of 3 new commits not signed"), "{reason}");

    commit(bench.dir.path(), &QUICKSTART, "by another", Some(first));
    sign_head(bench.dir.path(), 2);
    let reason = bench.look().await.refused.unwrap().reason;
    assert!(reason.contains("is not among the allowed signers"), "{reason}");
    // Once that other one is allowed, the same commit is judged again.
    allow(bench.dir.path(), &[1, 2]);
    assert_eq!(bench.look().await.state, SourceState::Ready);
    // Whoever is no longer allowed does not undo what was accepted.
    allow(bench.dir.path(), &[1]);
    assert_eq!(bench.look().await.state, SourceState::Ready);
}

fn merge(dir: &Path, ours: git2::Oid, theirs: git2::Oid) {
    let repository = Repository::open_bare(dir.join("remote")).unwrap();
    let (ours, theirs) = (repository.find_commit(ours).unwrap(), repository.find_commit(theirs).unwrap());
    let author = Signature::now("Ada", "ada@example.com").unwrap();
    let tree = ours.tree().unwrap();
    let oid = repository.commit(None, &author, &author, "merge", &tree, &[&ours, &theirs]).unwrap();
    repository.reference("refs/heads/main", oid, true, "test").unwrap();
}

#[tokio::test]
async fn signers_that_cannot_be_read_let_nothing_in() {
    let dir = tempfile::tempdir().unwrap();
    commit(dir.path(), &QUICKSTART, "begin", None);
    sign_head(dir.path(), 1);
    let bench = start(dir).await;
    let view = bench.look().await;
    assert!(view.problem.unwrap().contains("cannot read the allowed signers"));
    std::fs::write(bench.dir.path().join("allowed"), "# nobody\nada cert-authority ssh-ed25519 AAAA\n")
        .unwrap();
    let problem = bench.look().await.problem.unwrap();
    assert!(
        problem.contains("allowed` can't be followed") && problem.contains("line 2: `cert-authority`"),
        "{problem}"
    );
    assert!(bench.catalog.borrow().is_none());
    allow(bench.dir.path(), &[1]);
    assert_eq!(bench.look().await.state, SourceState::Ready);
}
