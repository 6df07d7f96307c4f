use std::collections::BTreeMap;
use std::time::Duration;

use denv_planner::{AskedPrefill, AskedUnit};
use denv_schema::quantity::Period;
use denv_schema::wire::{CaseAnswer, MOST_PROMPTS, Prompt, Said, TestId, TestRequest, TestResult};
use denv_schema::{MemberId, Name};
use uuid::Uuid;

use crate::link::Engines;

/// A host asks so many prompts at once, and gets this time beyond what they may take.
const AT_ONCE: usize = 8;
const PATIENCE: Duration = Duration::from_secs(30);

/// A unit that is asked, through the hosts of its members.
pub(super) struct Ask<'a> {
    pub(super) engines: &'a Engines,
    /// Names this asking.
    pub(super) name: &'a str,
    pub(super) unit: &'a AskedUnit,
    /// How long one prompt may take.
    pub(super) timeout: Period,
}

type Answers = BTreeMap<Name, CaseAnswer>;

impl Ask<'_> {
    /// Puts prompts to the unit. What is not answered because a host is away is said so for each.
    pub(super) async fn put(&self, prompts: &[Prompt]) -> Answers {
        let mut answers = BTreeMap::new();
        let mut away: Option<String> = None;
        // What is read for another is not kept for long, so no more is read than is answered at once.
        let at_once = if self.unit.prefill.is_some() { AT_ONCE } else { MOST_PROMPTS };
        for (number, prompts) in prompts.chunks(at_once).enumerate() {
            let said = match (&away, &self.unit.prefill) {
                (Some(reason), _) => Err(reason.clone()),
                (None, None) => self.front(number, prompts.to_vec()).await.map(|result| result.answers),
                (None, Some(prefill)) => self.both(prefill, number, prompts).await,
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

    /// Brings the two pools together as gateways do. What the prefill member does not answer stands for the whole.
    async fn both(
        &self,
        prefill: &AskedPrefill,
        number: usize,
        prompts: &[Prompt],
    ) -> Result<Answers, String> {
        let AskedPrefill { member, host, hand_over } = prefill;
        let is_in_turn = hand_over.is_in_turn();
        // Of 63 bits: engines take it for a signed number.
        let rooms: Vec<u64> = prompts.iter().map(|_| Uuid::new_v4().as_u64_pair().1 >> 1).collect();
        let first = |(prompt, room): (&Prompt, &u64)| Prompt {
            whole: is_in_turn,
            ..prompt.with(hand_over.first(*room))
        };
        let firsts: Vec<Prompt> = prompts.iter().zip(&rooms).map(first).collect();
        let id = format!("prefill/{number}");
        if !is_in_turn {
            let reading = self.ask(host, member, &id, firsts.clone());
            let (read, answered) = tokio::join!(reading, self.front(number, firsts));
            let refused = read?.answers.into_iter().filter(|(_, it)| !matches!(it.said, Said::Answer(_)));
            let mut answers = answered?.answers;
            answers.extend(refused);
            return Ok(answers);
        }
        let mut read = self.ask(host, member, &id, firsts).await?;
        let mut seconds = Vec::new();
        for (prompt, room) in prompts.iter().zip(&rooms) {
            let body = read.bodies.get(&prompt.case).map(String::as_str).unwrap_or_default();
            let Some(answer) = read.answers.get_mut(&prompt.case) else { continue };
            if !matches!(answer.said, Said::Answer(_)) {
                continue;
            }
            match hand_over.second(*room, body.as_bytes()) {
                Ok(fields) => seconds.push(prompt.with(fields)),
                Err(error) => {
                    let reason = format!("what the prefill member answered hands nothing over: {error}");
                    answer.said = Said::Unreadable { reason };
                }
            }
        }
        let mut answers = read.answers;
        if !seconds.is_empty() {
            for (case, second) in self.front(number, seconds).await?.answers {
                let took_ms = second.took_ms + answers.get(&case).map_or(0, |first| first.took_ms);
                answers.insert(case, CaseAnswer { took_ms, said: second.said });
            }
        }
        Ok(answers)
    }

    /// Asks the member that answers.
    async fn front(&self, number: usize, prompts: Vec<Prompt>) -> Result<TestResult, String> {
        self.ask(&self.unit.host, &self.unit.member, &number.to_string(), prompts).await
    }

    async fn ask(
        &self,
        host: &Name,
        member: &MemberId,
        id: &str,
        prompts: Vec<Prompt>,
    ) -> Result<TestResult, String> {
        let rounds = u32::try_from(prompts.len().div_ceil(AT_ONCE)).unwrap_or(u32::MAX);
        let patience = self.timeout.get().saturating_mul(rounds).saturating_add(PATIENCE);
        let request = TestRequest {
            id: TestId(format!("{}/{id}", self.name)),
            member: member.clone(),
            generation: self.unit.generation,
            model: self.unit.model.clone(),
            timeout: self.timeout,
            prompts,
        };
        self.engines.ask(host, request, patience).await.map_err(|error| error.to_string())
    }
}
