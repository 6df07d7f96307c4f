//! Weights on disk, and from a server that really serves them.

mod folder;
mod sources;
mod stand_in;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use denv_schema::Digest;
use denv_schema::manifest::Weights;
use denv_schema::wire::FetchedBytes;
use denv_weights::{Progress, Reader};

use super::{Access, WeightStore, WeightsError};
use stand_in::{Fault, Seen, Site};

/// Waits as short as tests like them.
const WAITS: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(10)];
/// Nothing here takes this long unless it is broken.
const DEADLINE: Duration = Duration::from_secs(30);

fn store(dir: &Path) -> Arc<WeightStore> {
    store_with(dir, &[])
}

fn store_with(dir: &Path, access: &[(&str, &str)]) -> Arc<WeightStore> {
    // As denvd's `main` does.
    denv_link::install_tls_provider();
    let access: Access =
        access.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Arc::new(WeightStore { waits: WAITS.to_vec(), ..WeightStore::new(dir.to_owned(), access) })
}

fn weights(source: &str, content: &[u8]) -> Weights {
    Weights { source: source.to_owned(), digest: Digest::of_bytes(content) }
}

/// More than a buffer or two.
fn large() -> Vec<u8> {
    (0..3_000_000u32).map(|number| (number % 251) as u8).collect()
}

fn froms(seen: &[Seen]) -> Vec<u64> {
    seen.iter().map(|seen| seen.from).collect()
}

/// Everything below the folder of fetched weights, but its lock.
fn fetched(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir.join("fetched")).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| name != "lock").collect();
    names.sort();
    names
}

#[tokio::test]
async fn only_the_file_that_was_meant_passes() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("model.gguf");
    let store = store(dir.path());

    let missing = store.clone().prepare(weights("file:model.gguf", b"good")).await.unwrap_err();
    assert!(missing.to_string().contains("model.gguf` cannot be read: No such file"), "{missing}");

    fs::write(&file, b"good").unwrap();
    assert_eq!(store.clone().prepare(weights("file:model.gguf", b"good")).await.unwrap(), file);
    let absolute = format!("file:{}", file.display());
    assert_eq!(store.clone().prepare(weights(&absolute, b"good")).await.unwrap(), file);

    // Changed under its name: the remembered digest is not trusted.
    fs::write(&file, b"evil").unwrap();
    let changed = store.clone().prepare(weights("file:model.gguf", b"good")).await.unwrap_err().to_string();
    let found = Digest::of_bytes(b"evil").to_string();
    assert!(changed.contains(&found) && changed.contains("expected sha256:"), "{changed}");
    // Nothing is written where nothing is fetched.
    assert!(!dir.path().join("fetched").exists());
}

#[tokio::test]
async fn a_folder_is_told_apart_from_the_one_that_was_meant() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("llama");
    fs::create_dir(&folder).unwrap();
    for name in ["config.json", "model-1.safetensors", "model-2.safetensors"] {
        fs::write(folder.join(name), name).unwrap();
    }
    let store = store(dir.path());
    let digest = Reader::default().read(&folder, &Progress::default()).unwrap().digest();
    let meant = Weights { source: "file:llama".to_owned(), digest };
    let prepare = || store.clone().prepare(meant.clone());

    // Nothing is known of a folder that was never right, but for one file too many.
    fs::write(folder.join("optimizer.pt"), "x").unwrap();
    let error = prepare().await.unwrap_err().to_string();
    assert!(error.ends_with("(a folder of 4 files): `optimizer.pt` is too many"), "{error}");
    fs::remove_file(folder.join("optimizer.pt")).unwrap();
    assert_eq!(prepare().await.unwrap(), folder);

    fs::remove_file(folder.join("config.json")).unwrap();
    fs::write(folder.join("model-1.safetensors"), "torn").unwrap();
    let error = prepare().await.unwrap_err().to_string();
    let differences = "(a folder of 2 files): `config.json` is missing, `model-1.safetensors` is another";
    assert!(error.ends_with(differences) && error.contains(&digest.to_string()), "{error}");
}

#[tokio::test]
async fn a_source_that_means_nothing_here_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let error = store(dir.path()).prepare(weights("ftp://models/x", b"")).await.unwrap_err();
    assert!(error.to_string().contains("`ftp://models/x` is of no kind that this denvd knows"), "{error}");
}

#[tokio::test]
async fn what_is_asked_for_by_several_is_fetched_once() {
    let (site, dir) = (Site::start().await, tempfile::tempdir().unwrap());
    let content = large();
    site.put("/models/model.gguf", &content);
    let store = store(dir.path());
    let meant = weights(&format!("{}/models/model.gguf", site.url), &content);
    let all = (0..5).map(|_| store.clone().prepare(meant.clone()));
    let home = dir.path().join("fetched").join(meant.digest.to_string().replace(':', "-"));
    for path in futures::future::try_join_all(all).await.unwrap() {
        assert_eq!(path, home.join("model.gguf"));
        assert!(fs::read(path).unwrap() == content);
    }
    assert_eq!(froms(&site.seen()), [0]);

    // The next denvd finds it there, without asking anybody.
    drop(store);
    drop(site);
    assert!(self::store(dir.path()).prepare(meant).await.unwrap().ends_with("model.gguf"));
}

#[tokio::test]
async fn what_breaks_off_goes_on_where_it_broke_off() {
    let (site, dir) = (Site::start().await, tempfile::tempdir().unwrap());
    let content = large();
    site.put("/model.gguf", &content);
    site.fault([Fault::Break(1_000_000), Fault::Status("503".parse().unwrap()), Fault::Short(7)]);
    let meant = weights(&format!("{}/model.gguf", site.url), &content);
    let path = store(dir.path()).prepare(meant).await.unwrap();
    assert!(fs::read(path).unwrap() == content);
    assert_eq!(froms(&site.seen()), [0, 1_000_000, 1_000_000, 1_000_007]);
}

#[tokio::test]
async fn a_source_without_ranges_begins_anew() {
    let (site, dir) = (Site::start().await, tempfile::tempdir().unwrap());
    let content = large();
    site.put("/model.gguf", &content);
    site.fault([Fault::Break(1_000_000), Fault::Whole]);
    let path =
        store(dir.path()).prepare(weights(&format!("{}/model.gguf", site.url), &content)).await.unwrap();
    assert!(fs::read(path).unwrap() == content);
}

#[tokio::test]
async fn the_next_denvd_goes_on_and_trusts_nothing_that_is_there() {
    let (site, dir) = (Site::start().await, tempfile::tempdir().unwrap());
    let content = large();
    site.put("/model.gguf", &content);
    let meant = weights(&format!("{}/model.gguf", site.url), &content);
    let partial = || {
        let name = format!("{}.partial", meant.digest.to_string().replace(':', "-"));
        dir.path().join("fetched").join(name).join("model.gguf")
    };
    let gone = || Fault::Status("503".parse().unwrap());
    site.fault([Fault::Break(1_000_000), gone(), gone()]);
    let error = store(dir.path()).prepare(meant.clone()).await.unwrap_err();
    assert!(
        error.may_pass() && error.to_string().contains("model.gguf` cannot be read: it answers 503"),
        "{error}"
    );
    assert_eq!(fs::metadata(partial()).unwrap().len(), 1_000_000);
    site.seen();

    // What was left is torn, as by a machine that lost power: it goes on, sees it, and fetches all.
    fs::write(partial(), vec![0; 1_000_000]).unwrap();
    let path = store(dir.path()).prepare(meant.clone()).await.unwrap();
    assert!(fs::read(path).unwrap() == content);
    assert_eq!(froms(&site.seen()), [1_000_000, 0]);
    assert_eq!(fetched(dir.path()), [meant.digest.to_string().replace(':', "-")]);
}

#[tokio::test]
async fn what_was_fetched_of_another_version_is_dropped() {
    let (site, dir) = (Site::start().await, tempfile::tempdir().unwrap());
    let content = large();
    let mut older = content.clone();
    older[0] += 1;
    site.put("/model.gguf", &older);
    let gone = || Fault::Status("503".parse().unwrap());
    site.fault([Fault::Break(1_000_000), gone(), gone()]);
    let meant = weights(&format!("{}/model.gguf", site.url), &content);
    store(dir.path()).prepare(meant.clone()).await.unwrap_err();
    assert_eq!(froms(&site.seen()), [0, 1_000_000, 1_000_000]);
    site.put("/model.gguf", &content);
    let path = store(dir.path()).prepare(meant).await.unwrap();
    assert!(fs::read(path).unwrap() == content);
    assert_eq!(froms(&site.seen()), [0]);
}

#[tokio::test]
async fn what_is_given_up_is_gone_on_with() {
    let (site, dir) = (Site::start().await, tempfile::tempdir().unwrap());
    let content = large();
    site.put("/model.gguf", &content);
    site.fault([Fault::Break(1_000_000), Fault::Silence]);
    let meant = weights(&format!("{}/model.gguf", site.url), &content);
    let store = store(dir.path());
    let given_up = tokio::spawn(store.clone().prepare(meant.clone()));
    let silent = async {
        let mut seen = Vec::new();
        while seen.len() < 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
            seen.extend(site.seen());
        }
    };
    tokio::time::timeout(DEADLINE, silent).await.unwrap();
    let fetched = store.fetched(meant.digest).unwrap();
    assert_eq!(fetched, FetchedBytes { bytes: 1_000_000, of: 3_000_000 });
    assert_eq!(fetched.to_string(), "33 % of 2.8 MiB");
    given_up.abort();
    assert!(given_up.await.unwrap_err().is_cancelled());
    assert_eq!(store.fetched(meant.digest), None);
    let prepared = tokio::time::timeout(DEADLINE, store.prepare(meant)).await.unwrap().unwrap();
    assert!(fs::read(prepared).unwrap() == content);
    assert_eq!(froms(&site.seen()), [1_000_000]);
}

#[tokio::test]
async fn other_content_is_not_kept_and_not_fetched_twice() {
    let (site, dir) = (Site::start().await, tempfile::tempdir().unwrap());
    site.put("/model.gguf", b"evil");
    let store = store(dir.path());
    let meant = weights(&format!("{}/model.gguf?signature=secret", site.url), b"good");
    for _ in 0..3 {
        let error = store.clone().prepare(meant.clone()).await.unwrap_err();
        assert!(matches!(error, WeightsError::Mismatch { .. }) && !error.may_pass(), "{error}");
        let text = error.to_string();
        assert!(text.contains("/model.gguf` are not what the release means: expected sha256:"), "{text}");
        assert!(text.contains(&Digest::of_bytes(b"evil").to_string()) && !text.contains("secret"), "{text}");
    }
    assert_eq!(froms(&site.seen()), [0]);
    assert_eq!(fetched(dir.path()), [] as [String; 0]);

    // Once there is something else, it is.
    site.put("/model.gguf", b"good");
    assert_eq!(fs::read(store.prepare(meant).await.unwrap()).unwrap(), b"good");
}

#[tokio::test]
async fn what_changed_on_the_disk_is_fetched_again() {
    let (site, dir) = (Site::start().await, tempfile::tempdir().unwrap());
    site.put("/model.gguf", b"good");
    let store = store(dir.path());
    let meant = weights(&format!("{}/model.gguf", site.url), b"good");
    let path = store.clone().prepare(meant.clone()).await.unwrap();
    fs::write(&path, "evil").unwrap();
    assert_eq!(store.prepare(meant).await.unwrap(), path);
    assert_eq!((fs::read(path).unwrap(), froms(&site.seen())), (b"good".to_vec(), vec![0, 0]));
}

#[tokio::test]
async fn an_address_that_gives_nothing_says_what_to_do_and_no_secret() {
    let (site, dir) = (Site::start().await, tempfile::tempdir().unwrap());
    site.put("/private/model.gguf", b"good");
    let store = store(dir.path());
    let error = async |path: &str| {
        let meant = weights(&format!("{}{path}?signature=secret", site.url), b"good");
        let error = store.clone().prepare(meant).await.unwrap_err().to_string();
        assert!(!error.contains("secret"), "{error}");
        error.replace(&site.url, "URL")
    };
    assert_eq!(
        error("/nowhere").await,
        "the weights cannot be fetched: there is nothing at `URL/nowhere`; correct the release's `source`, or put the \
         weights there"
    );
    assert_eq!(
        error("/private/model.gguf").await,
        "the weights cannot be fetched: this host may not read `URL/private/model.gguf` (403 Forbidden); let the host \
         read it without signing in, or name it by an address that is signed and still valid"
    );
    drop(site);
    let away = weights("http://127.0.0.1:1/model.gguf?signature=secret", b"good");
    let error = store.prepare(away).await.unwrap_err().to_string();
    assert!(error.contains("`http://127.0.0.1:1/model.gguf` cannot be read: "), "{error}");
    assert!(error.contains("Connection refused") && !error.contains("secret"), "{error}");
}
