use denv_schema::quantity::Share;
use jiff::SignedDuration;

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(second)
}

struct Bench {
    measurement: Measurement,
    unit: UnitId,
    member: MemberId,
    host: Name,
    gateway: Name,
}

impl Bench {
    fn new() -> Self {
        let unit = UnitId::from("chat.prod.1");
        let (member, host, gateway) = (MemberId::new(&unit, 0), "h1".parse().unwrap(), "g1".parse().unwrap());
        Bench { measurement: Measurement::new(at(100)), unit, member, host, gateway }
    }

    fn look(&self, generation: Generation, second: i64) {
        let (unit, member, host) = (&self.unit, &self.member, &self.host);
        let window = Duration::from_secs(60);
        let watched = Watched { unit, generation, member, host, serves: true, window };
        self.measurement.look(&[watched], |_| true, at(second));
    }

    fn count(&self, begun: i64, generation: Generation, requests: u64) {
        let counted = UnitMeasures { generation, requests, ..UnitMeasures::default() };
        let units = [(self.unit.clone(), counted)].into();
        self.measurement.gateway_measured(&self.gateway, GatewayMeasures { begun: at(begun), units });
    }

    fn since(&self, second: i64) -> Measured {
        self.measurement.since([&self.unit], at(second))
    }
}

#[test]
fn what_a_gateway_counted_before_is_not_taken_for_what_happens_now() {
    let bench = Bench::new();
    bench.look(1, 100);
    bench.count(50, 1, 1000);
    assert_eq!(bench.since(0).requests, 0, "it may have happened long ago");
    bench.count(50, 1, 1010);
    assert_eq!(bench.since(0).requests, 10);
    bench.count(120, 1, 3);
    assert_eq!(bench.since(0).requests, 13, "the gateway was restarted, and counts from zero");
    bench.count(120, 2, 5);
    assert_eq!(bench.since(0).requests, 13, "another generation is another unit");
    bench.look(2, 125);
    assert_eq!(bench.since(0).requests, 0);
    bench.count(120, 2, 6);
    assert_eq!(bench.since(0).requests, 1);
}

#[test]
fn a_window_forgets_and_stays_small() {
    let bench = Bench::new();
    for second in 0..2000 {
        bench.look(1, 1000 + second * 5);
        bench.count(500, 1, u64::try_from(second + 1).unwrap());
    }
    let now = 1000 + 1999 * 5;
    assert_eq!(bench.since(now - 59).requests, 12);
    assert_eq!(bench.since(0).requests, 121);
    assert_eq!(bench.since(now - 59).unit_time, Duration::from_secs(55));
}

#[test]
fn engines_are_read_each_time_and_no_longer_than_their_host_is_heard() {
    let bench = Bench::new();
    let told = |queued, asked| EngineMeasures {
        generation: 1,
        queued: Some(queued),
        cache_usage: Share::from_ratio(0.5),
        cache_lookups: Some(Lookups { asked, found: asked / 2 }),
        ..EngineMeasures::default()
    };
    let tell = |queued, asked| {
        let members = [(bench.member.clone(), told(queued, asked))].into();
        bench.measurement.host_measured(&bench.host, HostMeasures { members });
    };
    bench.look(1, 100);
    tell(4, 1000);
    bench.look(1, 105);
    bench.look(1, 110);
    tell(10, 1100);
    bench.look(1, 115);
    bench.measurement.host_gone(&bench.host);
    bench.look(1, 120);
    let sum = bench.since(0);
    assert_eq!((sum.queued.count, sum.queued.sum), (3, 18.0));
    assert_eq!(sum.lookups, Lookups { asked: 100, found: 50 });
}
