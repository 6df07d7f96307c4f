//! A hook has the remote looked at soon; a storm of them does not make a storm of fetches.

use super::*;

#[tokio::test]
async fn a_storm_of_hooks_is_a_look_or_two_and_the_push_is_seen() {
    let dir = tempfile::tempdir().unwrap();
    commit(dir.path(), &QUICKSTART, "begin", None);
    let bench = Bench::start(dir).await;
    let first = bench.look().await.fetched_at.unwrap();
    let pushed = commit(bench.dir.path(), &QUICKSTART, "go on", None).to_string();
    let (mut looks, mut last) = (0, first);
    let until = Instant::now() + Duration::from_secs(5);
    while Instant::now() < until {
        for _ in 0..100 {
            bench.source.hook();
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
        let fetched = bench.source.view().fetched_at.unwrap();
        looks += usize::from(fetched != last);
        last = fetched;
    }
    assert_eq!(bench.source.view().accepted.unwrap().commit, pushed);
    assert!((1..=3).contains(&looks), "{looks} looks in 5 s");
}
