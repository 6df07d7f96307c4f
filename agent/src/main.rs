use clap::Parser as _;
use denv_agent::arguments::{Arguments, LogFormat};
use denv_agent::daemon;
use tracing_subscriber::EnvFilter;

/// Supervision and a few streams: more threads would only take memory.
const THREADS: usize = 2;

fn main() -> anyhow::Result<()> {
    denv_link::install_tls_provider();
    let arguments = Arguments::parse();
    start_log(arguments.log_format);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .thread_name("denvd")
        .enable_all()
        .build()?;
    runtime.block_on(daemon::run(arguments))?;
    // A file that is still being verified is given up.
    runtime.shutdown_background();
    Ok(())
}

fn start_log(format: LogFormat) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => log.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).init(),
        LogFormat::Json => log.json().flatten_event(true).init(),
    }
}
