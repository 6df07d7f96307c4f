//! Generates the gRPC service of `src/rpc.rs`. Its messages are the Rust types of `denv_schema::wire`, sent as
//! JSON, so there is one type for the wire and the domain, and no proto compiler to install.

use tonic_build::manual::{Builder, Method, Service};

fn main() {
    let method = |name: &str, route: &str, input: &str, output: &str| {
        Method::builder()
            .name(name)
            .route_name(route)
            .input_type(format!("denv_schema::wire::{input}"))
            .output_type(format!("denv_schema::wire::{output}"))
            .codec_path("crate::codec::JsonCodec")
    };
    let service = Service::builder()
        .name("ControlPlane")
        .package("denv.v1")
        .method(method("join", "Join", "JoinRequest", "JoinResponse").build())
        .method(method("renew", "Renew", "JoinRequest", "JoinResponse").build())
        .method(
            method("attach_host", "AttachHost", "HostMessage", "HostInstruction")
                .client_streaming()
                .server_streaming()
                .build(),
        )
        .method(
            method("attach_gateway", "AttachGateway", "GatewayMessage", "GatewayInstruction")
                .client_streaming()
                .server_streaming()
                .build(),
        )
        .build();
    Builder::new().compile(&[service]);
}
