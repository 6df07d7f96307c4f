//! Folders of weights: a bucket's prefix, a model's repository.

use std::collections::BTreeMap;

use denv_weights::{FileContents, Listing};

use super::*;

const FILES: [(&str, &str); 4] = [
    ("config.json", "{}"),
    ("model-1.safetensors", "one"),
    ("model-2.safetensors", ""),
    ("tokenizer/vocab.json", "words"),
];

fn digest_of(files: &[(&str, &str)]) -> Digest {
    let contents =
        |text: &str| FileContents { bytes: text.len() as u64, digest: Digest::of_bytes(text.as_bytes()) };
    let listing: Listing = files.iter().map(|(name, text)| ((*name).to_owned(), contents(text))).collect();
    listing.digest()
}

fn read(folder: &Path) -> BTreeMap<String, String> {
    let denv_weights::Found::Folder(files) = denv_weights::find(folder).unwrap() else { panic!() };
    files.into_keys().map(|name| (name.clone(), fs::read_to_string(folder.join(name)).unwrap())).collect()
}

fn expected() -> BTreeMap<String, String> {
    FILES.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}

fn bucket_access(site: &Site) -> [(&'static str, String); 5] {
    [
        ("AWS_ENDPOINT_URL", site.url.clone()),
        ("AWS_ALLOW_HTTP", "true".to_owned()),
        ("AWS_ACCESS_KEY_ID", "key-id".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", "hush-hush".to_owned()),
        ("AWS_REGION", "eu-central-1".to_owned()),
    ]
}

fn store_for(dir: &Path, access: &[(&'static str, String)]) -> Arc<WeightStore> {
    let access: Vec<(&str, &str)> = access.iter().map(|(name, value)| (*name, value.as_str())).collect();
    store_with(dir, &access)
}

#[tokio::test]
async fn all_objects_below_a_prefix_are_a_folder() {
    let (site, dir) = (Site::start().await, tempfile::tempdir().unwrap());
    for (name, text) in FILES {
        site.put(&format!("/bucket/models/llama/{name}"), text.as_bytes());
    }
    // Not of them: a neighbour, a note of some tool, the mark of a folder.
    site.put("/bucket/models/llama-2/config.json", b"{}");
    site.put("/bucket/models/llama/.gitattributes", b"x");
    site.put("/bucket/models/llama/tokenizer", b"");
    site.fault([Fault::Break(0)]);
    let store = store_for(dir.path(), &bucket_access(&site));
    for source in ["s3://bucket/models/llama", "s3://bucket/models/llama/"] {
        let meant = Weights { source: source.to_owned(), digest: digest_of(&FILES) };
        let folder = store.clone().prepare(meant).await.unwrap();
        assert_eq!(read(&folder), expected());
    }
    assert!(site.seen().iter().all(|seen| !seen.path.contains("gitattributes")));

    // One more there than was meant.
    let fewer = Weights { source: "s3://bucket/models/llama".to_owned(), digest: digest_of(&FILES[..3]) };
    let error = store.prepare(fewer).await.unwrap_err().to_string();
    assert!(error.ends_with("(a folder of 4 files): `tokenizer/vocab.json` is too many"), "{error}");
}

#[tokio::test]
async fn one_object_is_a_file() {
    let (site, dir) = (Site::start().await, tempfile::tempdir().unwrap());
    let content = large();
    site.put("/bucket/models/model.gguf", &content);
    site.fault([Fault::Break(1_000_000)]);
    let store = store_for(dir.path(), &bucket_access(&site));
    let path = store.clone().prepare(weights("s3://bucket/models/model.gguf", &content)).await.unwrap();
    assert!(path.ends_with("model.gguf") && fs::read(path).unwrap() == content);

    let missing = store.clone().prepare(weights("s3://bucket/models/other.gguf", b"x")).await.unwrap_err();
    let missing = missing.to_string();
    assert!(missing.contains("there is nothing at `s3://bucket/models/other.gguf`"), "{missing}");
}

#[tokio::test]
async fn a_bucket_that_is_closed_says_what_denvd_needs() {
    let (site, dir) = (Site::start().await, tempfile::tempdir().unwrap());
    site.put("/bucket/model.gguf", b"good");
    let mut access = bucket_access(&site);
    access[2].1 = "other-id".to_owned();
    let error = store_for(dir.path(), &access).prepare(weights("s3://bucket/model.gguf", b"good")).await;
    let error = error.unwrap_err().to_string();
    assert_eq!(
        error,
        "the weights cannot be fetched: this host may not read `s3://bucket/model.gguf` (403 Forbidden); start denvd \
         with `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`, or give the host a role that may list and get its objects"
    );
    assert_eq!(format!("{:?}", store_for(dir.path(), &access).access).matches("hush").count(), 0);
}

#[tokio::test]
async fn a_models_repository_is_a_folder() {
    let (site, dir) = (Site::start().await, tempfile::tempdir().unwrap());
    for (name, text) in FILES {
        site.put(&format!("/owner/name/resolve/c0ffee/{name}"), text.as_bytes());
    }
    site.put("/owner/name/resolve/c0ffee/.gitattributes", b"x");
    let store = store_with(dir.path(), &[("HF_ENDPOINT", &site.url), ("HF_TOKEN", "hush-hush")]);
    let meant = Weights { source: "hf:owner/name".to_owned(), digest: digest_of(&FILES) };
    let folder = store.prepare(meant).await.unwrap();
    assert_eq!(read(&folder), expected());
    let seen = site.seen();
    assert!(seen.iter().all(|seen| seen.authorization.as_deref() == Some("Bearer hush-hush")), "{seen:?}");
}
