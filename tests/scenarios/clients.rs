//! The clients that applications use.

use std::path::{Path, PathBuf};

use crate::fixture::Fixture;

#[tokio::test]
async fn the_openai_sdk_is_served() {
    let Some(clients) = std::env::var_os("DENV_CLIENTS").map(PathBuf::from) else {
        assert!(std::env::var_os("CI").is_none(), "DENV_CLIENTS must be set in CI: run `make test`");
        eprintln!("skipped: DENV_CLIENTS is not set; `make test` sets the SDK up");
        return;
    };
    let fixture = Fixture::start().await;
    let output = tokio::process::Command::new(clients.join("bin/python"))
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/openai_chat.py"))
        .env("DENV_GATEWAY", fixture.gateway_url())
        .env("DENV_API_KEY", &fixture.key)
        .output()
        .await
        .unwrap();
    let (said, trouble) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.contains("the SDK is content"), "{said}\n{trouble}");
}
