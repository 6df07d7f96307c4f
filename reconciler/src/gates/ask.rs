use std::collections::BTreeMap;
use std::time::Duration;

use denv_planner::AskedUnit;
use denv_schema::Name;
use denv_schema::quantity::Period;
use denv_schema::wire::{CaseAnswer, MOST_PROMPTS, Prompt, Said, TestId, TestRequest};

use crate::link::Engines;

/// A host asks so many prompts at once, and gets this time beyond what they may take.
const AT_ONCE: usize = 8;
const PATIENCE: Duration = Duration::from_secs(30);

/// Puts prompts to a unit's engine, through its host. What is not answered because the host is away is said so for each.
pub(super) async fn unit(
    engines: &Engines,
    name: &str,
    asked: &AskedUnit,
    timeout: Period,
    prompts: Vec<Prompt>,
) -> BTreeMap<Name, CaseAnswer> {
    let mut answers = BTreeMap::new();
    let mut away: Option<String> = None;
    for (number, prompts) in prompts.chunks(MOST_PROMPTS).enumerate() {
        let rounds = u32::try_from(prompts.len().div_ceil(AT_ONCE)).unwrap_or(u32::MAX);
        let patience = timeout.get().saturating_mul(rounds).saturating_add(PATIENCE);
        let request = TestRequest {
            id: TestId(format!("{name}/{number}")),
            member: asked.member.clone(),
            generation: asked.generation,
            model: asked.model.clone(),
            timeout,
            prompts: prompts.to_vec(),
        };
        let said = match &away {
            Some(reason) => Err(reason.clone()),
            None => engines.ask(&asked.host, request, patience).await.map_err(|error| error.to_string()),
        };
        match said {
            Ok(said) => answers.extend(said),
            Err(reason) => {
                for prompt in prompts {
                    let said = Said::Away { reason: reason.clone() };
                    answers.insert(prompt.case.clone(), CaseAnswer { took_ms: 0, said });
                }
                away = Some(reason);
            }
        }
    }
    answers
}
