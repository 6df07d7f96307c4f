//! The folder that weights are fetched into.

use std::collections::BTreeSet;
use std::time::SystemTime;

use super::stand_in::ENDLESS;
use super::*;
use crate::weights::fetched::Fetched;

#[tokio::test]
async fn one_denvd_fetches_into_a_folder() {
    let (site, dir) = (Site::start().await, tempfile::tempdir().unwrap());
    site.put("/model.gguf", b"good");
    let meant = weights(&format!("{}/model.gguf", site.url), b"good");
    let first = store(dir.path());
    first.prepare(meant.clone()).await.unwrap();
    let second = store(dir.path());
    let error = second.clone().prepare(meant.clone()).await.map_err(|error| error.to_string());
    // The first has ended.
    assert!(error.is_ok(), "{error:?}");
    let error = store(dir.path()).prepare(meant).await.unwrap_err().to_string();
    assert!(error.starts_with("another denvd fetches weights into `"), "{error}");
}

#[tokio::test]
async fn a_disk_without_room_says_how_much_is_missing() {
    let (site, dir) = (Site::start().await, tempfile::tempdir().unwrap());
    let endless = weights(&format!("{}{ENDLESS}", site.url), b"x");
    let error = store(dir.path()).prepare(endless).await.unwrap_err().to_string();
    let begin = "there is no room for the weights: they need 1.0 PiB more in `";
    assert!(error.starts_with(begin) && error.contains("TiB are missing"), "{error}");
    assert_eq!(site.seen(), []);
}

#[test]
fn what_nobody_uses_makes_room() {
    let dir = tempfile::tempdir().unwrap();
    let fetched = Fetched::claim(dir.path().to_owned()).unwrap();
    let digests: Vec<Digest> = (0..3).map(|number| Digest::of_bytes(&[number])).collect();
    for (days, digest) in (1..).zip(&digests) {
        let whole = fetched.home(*digest).whole;
        fs::create_dir_all(whole.join("tokenizer")).unwrap();
        fs::write(whole.join("tokenizer/model.bin"), [0; 100]).unwrap();
        let used = SystemTime::now() - Duration::from_secs(days * 86_400);
        fs::File::open(&whole).unwrap().set_modified(used).unwrap();
    }
    let is_there = || digests.iter().map(|digest| fetched.home(*digest).is_whole()).collect::<Vec<_>>();
    // As long as nobody has said what is used, and where all would not be enough, all stays.
    assert!(!fetched.free(100, None).unwrap());
    assert!(!fetched.free(201, Some(&BTreeSet::from([digests[2]]))).unwrap());
    assert_eq!(is_there(), [true, true, true]);
    assert!(fetched.free(100, Some(&BTreeSet::from([digests[2]]))).unwrap());
    assert_eq!(is_there(), [true, false, true]);
    fetched.home(digests[0]).touch();
    assert!(fetched.free(1, Some(&BTreeSet::new())).unwrap());
    assert_eq!(is_there(), [true, false, false]);
}
