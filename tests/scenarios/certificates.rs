//! Certificates that end while everything goes on.

use std::time::Duration;

use denv_tests::traffic::Traffic;

use crate::fixture::Fixture;

#[tokio::test]
async fn short_certificates_are_renewed_and_not_one_request_fails() {
    let mut fixture = Fixture::create();
    fixture.layout.reconciler_flags = vec!["--certificate-lifetime".to_owned(), "10s".to_owned()];
    fixture.start(&["host-a", "host-b"]).await.unwrap();
    fixture.ready("r1").await;
    let traffic = Traffic::start(&fixture.application(), 2, 5);
    let processes = [&fixture.hosts["host-a"], &fixture.hosts["host-b"], fixture.gateway.as_ref().unwrap()];
    denv_tests::until("two renewals of each", Duration::from_secs(60), || async {
        let renewed = |log: String| log.matches("renewed the certificate").count() >= 3;
        Ok(processes.iter().all(|process| renewed(process.logged())).then_some(()))
    })
    .await
    .unwrap();
    // A roll needs new connections of everybody.
    fixture.release("r1", "r2").await;
    fixture.ready("r2").await;
    let (answered, failures) = traffic.stop().await;
    assert!(failures.is_empty(), "{failures:?}");
    assert!(answered > 100, "{answered}");
}
