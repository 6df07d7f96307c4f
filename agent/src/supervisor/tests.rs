use std::time::Duration;

use denv_schema::wire::MemberState;
use proptest::prelude::*;

use super::*;

fn policy() -> Policy {
    Policy {
        start_timeout: Duration::from_secs(600),
        fetch_timeout: Duration::ZERO,
        stop_timeout: Duration::from_secs(30),
        first_check: Duration::from_millis(200),
        probe_interval: Duration::from_secs(1),
        probe_failures: 3,
    }
}

fn secs(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

/// A member with a clock, and what it was told to do.
struct Bench {
    member: Supervised,
    now: Moment,
    done: Vec<Action>,
}

impl Bench {
    fn start() -> Self {
        let mut bench = Bench { member: Supervised::stopped(policy()), now: Moment::ZERO, done: vec![] };
        bench.tell(Event::Start(policy()));
        bench
    }

    fn running() -> Self {
        let mut bench = Bench::start();
        bench.launch();
        bench.done.clear();
        bench
    }

    fn healthy() -> Self {
        let mut bench = Bench::running();
        bench.check(Ok(()));
        assert_eq!(bench.member.state(), MemberState::Healthy);
        bench
    }

    fn tell(&mut self, event: Event) -> Vec<Action> {
        let (member, actions) = decide(self.member.clone(), event, self.now);
        self.member = member;
        self.done.extend(&actions);
        actions
    }

    fn launch(&mut self) {
        assert_eq!(self.tell(Event::Prepared(Ok(()))), [Action::Launch]);
        self.tell(Event::Launched(Ok(())));
    }

    fn check(&mut self, result: Result<(), &str>) -> Vec<Action> {
        self.tell(Event::Checked(result.map_err(str::to_owned)))
    }

    fn exit(&mut self) -> Vec<Action> {
        self.tell(Event::Exited { how: "exited with status 2".to_owned(), log: "no such flag".to_owned() })
    }

    /// To the next time it wants to be woken.
    fn sleep(&mut self) -> Duration {
        let until = self.member.wake_at().expect("it waits for a time");
        let slept = until.saturating_sub(self.now);
        self.now = self.now.max(until);
        slept
    }

    fn reason(&self) -> &str {
        self.member.reason().unwrap_or_default()
    }
}

#[test]
fn a_member_becomes_healthy_at_the_first_passed_check() {
    let mut bench = Bench::start();
    assert_eq!(bench.member.state(), MemberState::Preparing);
    bench.launch();
    assert_eq!(bench.member.state(), MemberState::Starting);
    bench.sleep();
    assert_eq!(bench.tell(Event::Tick), [Action::Check]);
    assert_eq!(bench.tell(Event::Tick), []);
    bench.check(Err("cannot connect"));
    assert_eq!(
        (bench.member.state(), bench.reason()),
        (MemberState::Starting, "no check passed yet: cannot connect")
    );
    assert_eq!(bench.sleep(), secs(1.0));
    assert_eq!(bench.tell(Event::Tick), [Action::Check]);
    bench.check(Ok(()));
    assert_eq!((bench.member.state(), bench.member.reason()), (MemberState::Healthy, None));
}

#[test]
fn an_engine_that_ends_three_times_before_it_serves_is_given_up() {
    let mut bench = Bench::running();
    for wait in [1.0, 2.0] {
        bench.exit();
        assert_eq!(bench.member.state(), MemberState::Starting);
        assert_eq!(bench.sleep(), secs(wait));
        assert_eq!(bench.tell(Event::Tick), [Action::Prepare]);
        bench.launch();
    }
    assert_eq!(bench.member.restarts(), 2);
    bench.exit();
    assert_eq!(bench.member.state(), MemberState::Failed);
    assert_eq!(bench.reason(), "exited with status 2: no such flag");
    assert_eq!(bench.member.wake_at(), None);
}

#[test]
fn an_engine_that_served_is_restarted_for_ever() {
    let mut bench = Bench::healthy();
    for wait in [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0] {
        bench.exit();
        assert_eq!(bench.member.state(), MemberState::Unhealthy);
        assert_eq!(bench.sleep(), secs(wait));
        assert_eq!(bench.tell(Event::Tick), [Action::Prepare]);
        bench.launch();
        assert_eq!(bench.member.state(), MemberState::Unhealthy);
        bench.check(Ok(()));
        assert_eq!(bench.member.state(), MemberState::Healthy);
    }
    assert_eq!(bench.member.restarts(), 8);
    // A minute of health, and the next crash is like the first.
    bench.now += FORGIVEN_AFTER;
    bench.exit();
    assert_eq!(bench.sleep(), secs(0.5));
}

#[test]
fn failed_checks_make_it_unhealthy_then_it_is_taken_to_hang() {
    let mut bench = Bench::healthy();
    for failed in 1..13 {
        assert_eq!(bench.check(Err("timed out")), []);
        let expected = if failed < 3 { MemberState::Healthy } else { MemberState::Unhealthy };
        assert_eq!(bench.member.state(), expected, "{failed}");
    }
    assert_eq!(bench.check(Err("timed out")), [Action::Kill]);
    bench.tell(Event::Exited { how: "killed by SIGKILL".to_owned(), log: String::new() });
    assert_eq!(bench.member.state(), MemberState::Unhealthy);
    assert!(
        bench.reason().starts_with("killed: 13 checks in a row failed (timed out)"),
        "{}",
        bench.reason()
    );
    bench.sleep();
    assert_eq!(bench.tell(Event::Tick), [Action::Prepare]);

    let mut bench = Bench::healthy();
    bench.check(Err("x"));
    bench.check(Err("x"));
    bench.check(Err("x"));
    bench.check(Ok(()));
    assert_eq!((bench.member.state(), bench.member.reason()), (MemberState::Healthy, None));
}

#[test]
fn one_that_is_never_healthy_is_killed_when_its_time_is_over() {
    let mut bench = Bench::running();
    bench.check(Err("GET /health answered 503"));
    bench.now = secs(600.0);
    assert_eq!(bench.tell(Event::Tick), [Action::Kill]);
    // Reported only once its GPUs are free.
    assert_eq!(bench.member.state(), MemberState::Starting);
    bench.exit();
    assert_eq!(bench.member.state(), MemberState::Failed);
    assert_eq!(bench.reason(), "not healthy within 10m: GET /health answered 503: no such flag");
}

#[test]
fn one_that_served_has_its_time_again_after_a_restart() {
    let mut bench = Bench::healthy();
    bench.now = secs(10_000.0);
    bench.exit();
    bench.sleep();
    bench.tell(Event::Tick);
    bench.launch();
    for _ in 0..50 {
        bench.sleep();
        assert_eq!(bench.tell(Event::Tick), [Action::Check]);
        bench.check(Err("loading"));
    }
    bench.now += secs(600.0);
    assert_eq!(bench.tell(Event::Tick), [Action::Kill]);
    bench.exit();
    assert_eq!(bench.member.state(), MemberState::Unhealthy);
}

#[test]
fn weights_or_programs_that_are_not_there_fail_at_once() {
    let mut bench = Bench::start();
    bench.tell(Event::Prepared(Err("the weights cannot be read".to_owned())));
    assert_eq!((bench.member.state(), bench.reason()), (MemberState::Failed, "the weights cannot be read"));

    let failure = |permanent| LaunchFailure { reason: "no program".to_owned(), permanent };
    let mut bench = Bench::start();
    bench.tell(Event::Prepared(Ok(())));
    bench.tell(Event::Launched(Err(failure(true))));
    assert_eq!((bench.member.state(), bench.reason()), (MemberState::Failed, "no program"));

    let mut bench = Bench::start();
    bench.tell(Event::Prepared(Ok(())));
    bench.tell(Event::Launched(Err(failure(false))));
    assert_eq!(bench.sleep(), secs(1.0));

    let mut bench = Bench::start();
    bench.sleep();
    bench.tell(Event::Tick);
    assert_eq!((bench.member.state(), bench.reason()), (MemberState::Failed, "not prepared within 10m"));
}

#[test]
fn fetching_comes_on_top_of_the_time_that_an_engine_has() {
    let fetches = Policy { fetch_timeout: secs(3600.0), ..policy() };
    let start = || {
        let member = Supervised::stopped(fetches.clone());
        let mut bench = Bench { member, now: Moment::ZERO, done: vec![] };
        bench.tell(Event::Start(fetches.clone()));
        bench
    };
    let mut bench = start();
    assert_eq!(bench.sleep(), secs(4200.0));
    bench.tell(Event::Tick);
    assert_eq!(bench.reason(), "not prepared within 1h10m");

    let mut bench = start();
    bench.now = secs(3000.0);
    bench.launch();
    assert_eq!(bench.member.ready_by, secs(3600.0), "ten minutes from its launch");

    let adopted = Supervised::adopted(fetches, false, 0, secs(1.0));
    assert_eq!(adopted.ready_by, secs(601.0));
}

#[test]
fn a_stop_is_one_sigterm_then_sigkill_after_the_bound() {
    let mut bench = Bench::healthy();
    assert_eq!(bench.tell(Event::Stop), [Action::Terminate]);
    assert_eq!(bench.tell(Event::Stop), []);
    assert_eq!(bench.member.state(), MemberState::Stopping);
    assert_eq!(bench.sleep(), secs(30.0));
    assert_eq!(bench.tell(Event::Tick), [Action::Kill]);
    assert_eq!(bench.reason(), "still ran 30s after SIGTERM; sent SIGKILL");
    assert_eq!(bench.tell(Event::Tick), []);
    bench.exit();
    assert_eq!((bench.member.state(), bench.member.reason()), (MemberState::Stopped, None));
}

#[test]
fn without_an_engine_a_stop_is_immediate() {
    let waiting = || {
        let mut bench = Bench::healthy();
        bench.exit();
        bench
    };
    let failed = || {
        let mut bench = Bench::start();
        bench.tell(Event::Prepared(Err("x".to_owned())));
        bench
    };
    for mut bench in [Bench::start(), waiting(), failed()] {
        assert_eq!(bench.tell(Event::Stop), []);
        assert_eq!(bench.member.state(), MemberState::Stopped);
        assert_eq!(bench.tell(Event::Prepared(Ok(()))), []);
    }
}

#[test]
fn a_newer_generation_waits_for_the_end_of_the_older() {
    let mut bench = Bench::healthy();
    assert_eq!(bench.tell(Event::Start(policy())), [Action::Terminate]);
    assert_eq!(bench.member.state(), MemberState::Preparing);
    assert!(!bench.member.was_healthy());
    bench.sleep();
    assert_eq!(bench.tell(Event::Tick), [Action::Kill]);
    assert_eq!(bench.exit(), [Action::Prepare]);
    assert_eq!((bench.member.state(), bench.member.restarts()), (MemberState::Preparing, 0));

    // And a stop in between wins.
    let mut bench = Bench::healthy();
    bench.tell(Event::Start(policy()));
    assert_eq!(bench.tell(Event::Stop), []);
    assert_eq!(bench.exit(), []);
    assert_eq!(bench.member.state(), MemberState::Stopped);
}

#[test]
fn after_a_restart_of_denvd_what_runs_is_checked_and_what_ended_is_started() {
    let now = secs(5.0);
    let adopted = Supervised::adopted(policy(), true, 4, now);
    assert_eq!((adopted.state(), adopted.wake_at()), (MemberState::Unhealthy, Some(now)));
    let (adopted, _) = decide(adopted, Event::Checked(Ok(())), now);
    assert_eq!((adopted.state(), adopted.restarts()), (MemberState::Healthy, 4));

    let ended = Supervised::ended_unseen(policy(), true, 4, now);
    let (ended, actions) = decide(ended, Event::Prepared(Ok(())), now);
    assert_eq!(actions, [Action::Launch]);
    let (ended, _) = decide(ended, Event::Launched(Ok(())), now);
    assert_eq!((ended.state(), ended.restarts()), (MemberState::Unhealthy, 5));
}

#[derive(Clone, Debug)]
enum Step {
    Start,
    Stop,
    /// The engine ends by itself.
    Crash,
    /// What is under way ends, well or not.
    Answer(bool),
    /// The engine gives in to a signal.
    Die,
    Sleep,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => Just(Step::Start),
        1 => Just(Step::Stop),
        2 => Just(Step::Crash),
        6 => any::<bool>().prop_map(Step::Answer),
        3 => Just(Step::Die),
        6 => Just(Step::Sleep),
    ]
}

proptest! {
    /// Over any history: one engine at a time, one SIGTERM for each, nothing is left in a state without an engine,
    /// nothing waits without a time to wake, and after a stop nothing is launched.
    #[test]
    fn supervision_is_safe(steps in prop::collection::vec(step(), 0..120)) {
        let mut bench = Bench { member: Supervised::stopped(policy()), now: Moment::ZERO, done: vec![] };
        let (mut alive, mut signalled, mut terms, mut wanted) = (false, false, 0, false);
        let (mut preparing, mut checking) = (false, false);
        for step in steps {
            let event = match step {
                Step::Start => { wanted = true; Some(Event::Start(policy())) }
                Step::Stop => { wanted = false; Some(Event::Stop) }
                Step::Crash if alive => Some(Event::Exited { how: "crashed".to_owned(), log: String::new() }),
                Step::Die if alive && signalled => Some(Event::Exited { how: "ended".to_owned(), log: String::new() }),
                Step::Answer(good) if preparing => {
                    preparing = false;
                    Some(Event::Prepared(if good { Ok(()) } else { Err("bad".to_owned()) }))
                }
                Step::Answer(good) if checking => {
                    checking = false;
                    Some(Event::Checked(if good { Ok(()) } else { Err("bad".to_owned()) }))
                }
                Step::Sleep => bench.member.wake_at().map(|at| { bench.now = bench.now.max(at); Event::Tick }),
                Step::Crash | Step::Die | Step::Answer(_) => None,
            };
            let Some(event) = event else { continue };
            if matches!(event, Event::Exited { .. }) {
                alive = false;
            }
            let mut events = vec![event];
            while let Some(event) = events.pop() {
                for action in bench.tell(event) {
                    match action {
                        Action::Launch => {
                            prop_assert!(!alive && wanted);
                            (alive, signalled, terms) = (true, false, 0);
                            events.push(Event::Launched(Ok(())));
                        }
                        Action::Terminate => { prop_assert!(alive); signalled = true; terms += 1; }
                        Action::Kill => { prop_assert!(alive); signalled = true; }
                        Action::Prepare => { prop_assert!(!alive); preparing = true; }
                        Action::Check => { prop_assert!(alive); checking = true; }
                    }
                }
            }
            prop_assert!(terms <= 1);
            preparing &= *bench.member.phase() == Phase::Preparing;
            checking &= matches!(bench.member.phase(), Phase::Running(_));
            match bench.member.phase() {
                Phase::Running(_) => prop_assert!(alive && wanted && (checking || bench.member.wake_at().is_some())),
                Phase::Killing { .. } => prop_assert!(alive && signalled),
                Phase::Stopping { kill_at, .. } => prop_assert!(alive && (signalled || kill_at.is_some())),
                Phase::Preparing => prop_assert!(!alive && wanted && preparing),
                Phase::Waiting { .. } => prop_assert!(!alive && wanted && bench.member.wake_at().is_some()),
                Phase::Failed => prop_assert!(!alive && wanted),
                Phase::Stopped => prop_assert!(!alive && !wanted),
            }
        }
    }

    /// Woken when nothing is due, nothing happens.
    #[test]
    fn it_is_quiet_until_something_is_due(early in 1u64..190) {
        let mut bench = Bench::running();
        let before = bench.member.clone();
        bench.now += Duration::from_millis(early);
        prop_assert_eq!(bench.tell(Event::Tick), []);
        prop_assert_eq!(bench.member, before);
    }
}
