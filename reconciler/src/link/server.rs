//! The listening side: mutual TLS with a certificate that is renewed while it serves.

use std::sync::Arc;
use std::time::Duration;

use denv_link::credentials::CredentialsError;
use denv_link::enrolment::GRPC;
use denv_link::rpc::control_plane_server::ControlPlaneServer;
use denv_link::{Authority, Identity, MAX_MESSAGE_BYTES, alive};
use denv_schema::Name;
use jiff::Timestamp;
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;

use super::{Links, Service};

/// How long the control plane's own certificate lasts. It needs nobody to renew it, so only its theft sets a limit.
const LIFETIME: Duration = Duration::from_secs(86_400);

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("cannot make the control plane's certificate")]
    Certificate(#[from] denv_link::authority::AuthorityError),
    #[error("cannot use the control plane's certificate")]
    Credentials(#[from] CredentialsError),
    #[error("the link's server ended")]
    Server(#[from] tonic::transport::Error),
}

/// Serves hosts and gateways until told to stop.
pub async fn serve(
    links: Links,
    authority: Arc<Authority>,
    listener: TcpListener,
    stop: CancellationToken,
) -> Result<(), ServeError> {
    let tenants: Vec<Name> = links.0.keys().cloned().collect();
    let first = server_config(&authority, &tenants)?;
    let (configs, current) = watch::channel(Arc::new(first));
    let renewing = {
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(LIFETIME * 2 / 3).await;
                match server_config(&authority, &tenants) {
                    Ok(config) => drop(configs.send_replace(Arc::new(config))),
                    Err(error) => {
                        let error = &error as &dyn std::error::Error;
                        tracing::error!(error, "cannot renew the control plane's certificate");
                    }
                }
            }
        })
    };
    let service = ControlPlaneServer::new(Service(Arc::new(links)))
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES);
    let served = Server::builder()
        .http2_keepalive_interval(Some(alive::LISTENER_ASKS))
        .http2_keepalive_timeout(Some(alive::LISTENER_WAITS))
        .add_service(service)
        .serve_with_incoming_shutdown(denv_link::listen::accept(listener, current), stop.cancelled())
        .await;
    renewing.abort();
    Ok(served?)
}

/// It answers to the name that each tenant's peers know it by, and to the one that those who join know it by: before
/// they have a certificate they know no tenant.
fn server_config(authority: &Authority, tenants: &[Name]) -> Result<ServerConfig, ServeError> {
    let joining = denv_link::identity::tenant();
    let others = tenants.iter().filter(|tenant| **tenant != joining).map(Identity::control_plane);
    let also: Vec<Identity> = others.collect();
    let identity = Identity::control_plane(&joining);
    let credentials = authority.issue_for(&identity, &also, Timestamp::now(), LIFETIME)?;
    // Those without a certificate may do nothing but join.
    Ok(credentials.server_config(&[GRPC], true)?)
}
