//! `denv usage`: what customers used, in tokens.

use std::time::Duration;

use clap::Args;
use denv_schema::Name;
use denv_schema::api::UsageView;
use denv_schema::quantity::Period;
use denv_schema::wire::TokenCounts;
use jiff::{SignedDuration, Timestamp};

use crate::client::Client;
use crate::error::Error;
use crate::output::{Exit, Format, Output};
use crate::table::{Cell, lines};

/// Show what customers used, by model
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Usage {
    /// Only this customer's
    #[arg(long, value_name = "CUSTOMER")]
    customer: Option<Name>,

    /// Only what was used since then: a length of time (24h), or a time (2026-11-01T00:00:00Z)
    #[arg(long, value_name = "24h|TIME", value_parser = since)]
    since: Option<Since>,

    /// The form of the answer
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Since {
    Ago(Duration),
    At(Timestamp),
}

const EXAMPLES: &str = "\
Examples:
  denv usage --since 24h
  denv usage --customer acme --since 2026-11-01T00:00:00Z -o json

INPUT are prompt tokens that were computed, CACHED those that were not; REASONING are among OUTPUT.";

pub(crate) async fn run(arguments: &Usage, client: &Client, output: &mut Output) -> Result<Exit, Error> {
    let since = arguments.since.map(|since| match since {
        Since::Ago(ago) => Timestamp::now() - SignedDuration::try_from(ago).unwrap_or(SignedDuration::MAX),
        Since::At(at) => at,
    });
    let answer = client.usage(since, arguments.customer.as_ref().map(Name::as_str)).await?;
    match arguments.output {
        Format::Json => output.json(&answer.0)?,
        Format::Yaml => output.yaml(&answer.0)?,
        Format::Text => {
            let usage: Vec<UsageView> = answer.items()?;
            match usage.is_empty() {
                true => output.note("no usage"),
                false => output.say(&render(&usage))?,
            }
        }
    }
    Ok(Exit::Done)
}

fn since(text: &str) -> Result<Since, String> {
    if let Ok(period) = text.parse::<Period>() {
        return Ok(Since::Ago(period.get()));
    }
    text.parse()
        .map(Since::At)
        .map_err(|_| "write 24h, 7d, or a time such as 2026-11-01T00:00:00Z".to_owned())
}

fn render(usage: &[UsageView]) -> String {
    let titles = ["CUSTOMER", "MODEL", "REQUESTS", "INPUT", "CACHED", "OUTPUT", "REASONING"];
    let row = |customer: &str, model: &str, requests: u64, tokens: TokenCounts| {
        let numbers = [requests, tokens.input, tokens.cached_input, tokens.output, tokens.reasoning];
        [customer, model]
            .into_iter()
            .map(Cell::plain)
            .chain(numbers.map(|n| Cell::number(grouped(n))))
            .collect()
    };
    let mut rows: Vec<Vec<Cell>> = usage
        .iter()
        .map(|usage| row(usage.customer.as_str(), &usage.model, usage.requests, usage.tokens))
        .collect();
    if usage.len() > 1 {
        let mut total = TokenCounts::default();
        usage.iter().for_each(|usage| total += usage.tokens);
        rows.push(row("total", "", usage.iter().map(|usage| usage.requests).sum(), total));
    }
    lines(titles.map(str::to_owned).to_vec(), rows)
}

/// `1,234,567`
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_adds_up() {
        let tokens = TokenCounts { input: 1_200, cached_input: 800, output: 1_234_567, reasoning: 0 };
        let usage = |customer: &str, model: &str| UsageView {
            customer: customer.parse().unwrap(),
            model: model.to_owned(),
            requests: 12,
            tokens,
        };
        insta::assert_snapshot!(render(&[usage("acme", "flash"), usage("demo", "smollm2")]), @"
        CUSTOMER   MODEL     REQUESTS   INPUT   CACHED      OUTPUT   REASONING
        acme       flash           12   1,200      800   1,234,567           0
        demo       smollm2         12   1,200      800   1,234,567           0
        total                      24   2,400    1,600   2,469,134           0
        ");
        assert!(!render(&[usage("acme", "flash")]).contains("total"));
    }

    #[test]
    fn a_beginning_is_a_period_or_a_time() {
        assert_eq!(since("24h"), Ok(Since::Ago(Duration::from_secs(86_400))));
        assert_eq!(since("2026-11-01T00:00:00Z"), Ok(Since::At("2026-11-01T00:00:00Z".parse().unwrap())));
        assert!(since("yesterday").is_err());
    }
}
