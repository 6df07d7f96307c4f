//! How the demo speaks. All printing goes through here.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this is the demo's voice")]

use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::sync::OnceLock;
use std::time::Instant;

fn clock() -> f64 {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    BEGAN.get_or_init(Instant::now).elapsed().as_secs_f64()
}

fn styled(code: &str, text: &str) -> String {
    let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    if colour { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
}

/// A part of the story.
pub(crate) fn chapter(title: &str) {
    println!("\n{}", styled("1", &format!("== {title}")));
}

/// One thing that happened.
pub(crate) fn line(text: &str) {
    println!("{} {text}", styled("2", &format!("{:6.1}s", clock())));
}

/// What the control plane says happened.
pub(crate) fn event(subject: &str, message: &str) {
    // An engine's own words run over several lines.
    line(&format!("  {} {}", styled("36", subject), message.replace('\n', "\n            ")));
}

/// Part of an answer, as it comes.
pub(crate) fn piece(text: &str) {
    print!("{}", styled("32", text));
    let _ = std::io::stdout().flush();
}

pub(crate) fn end_of_answer() {
    println!();
}

/// The output of a command, as it is.
pub(crate) fn output(command: &str, text: &str) {
    println!("        {}", styled("2", &format!("$ {command}")));
    for line in text.lines() {
        println!("        {line}");
    }
}

pub(crate) fn trouble(text: &str) {
    eprintln!("\nthe demo stopped: {text}");
}

pub(crate) fn log(text: &str) {
    eprintln!("{text}");
}

pub(crate) fn what_next(env: &Path, repository: &Path) {
    println!(
        "
denv is running. Try:

  . {env}
  export PATH=$PWD/target/release:$PATH

  denv get stages                       what should run, and what does
  denv describe stage chat/prod         why it is as it is
  curl $DENV_GATEWAY/v1/chat/completions -H \"Authorization: Bearer $DENV_API_KEY\" \\
    -d '{{\"model\": \"smollm2\", \"messages\": [{{\"role\": \"user\", \"content\": \"Why is the sky blue?\"}}]}}'

  cd {repository}     a clone of the configuration: change service.yaml or software.yaml, then
  denv diff                             what you changed, and what it does
  denv plan                             what would happen, step by step
  git commit -a && git push && denv source refresh main && denv rollout status chat/prod --watch
  denv apply -f service.yaml --wait     the same, without Git

  make down                             stop it all",
        env = env.display(),
        repository = repository.display(),
    );
}
