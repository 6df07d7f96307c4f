//! What goes between the reconciler and its hosts and gateways, and how long it takes.

use denv_planner::{GatewayObserved, HostObserved, knows_what_serves, routes};
use jiff::{SignedDuration, Timestamp};

use crate::world::Simulation;

impl Simulation {
    pub fn attach_all(&mut self) {
        let now = self.now;
        for index in 0..self.hosts.len() {
            let soon = self.lag == 0 || self.chance(2);
            let host = &mut self.hosts[index];
            let known = self.observed.hosts.get(&host.name).is_some_and(|known| known.connected);
            if !host.is_reachable() && (host.linked || known) {
                host.detach();
                let observed = self.observed.hosts.get_mut(&host.name).unwrap();
                (observed.connected, observed.last_seen) = (false, now);
                self.quiet_until = None;
            } else if host.is_reachable() && !host.linked && soon {
                host.detach();
                host.linked = true;
                host.welcome(self.control.term());
                self.queues[index] = Some(self.control.attach(&host.name));
                self.control.wake(&host.name);
                let observed = HostObserved {
                    connected: true,
                    last_seen: now,
                    version: "0".to_owned(),
                    ingress: "127.0.0.1:1".to_owned(),
                    report: host.report().into(),
                };
                self.observed.hosts.insert(host.name.clone(), observed);
                self.quiet_until = None;
            }
        }
        for index in 0..self.gateways.len() {
            let soon = self.lag == 0 || self.chance(2);
            let gateway = &mut self.gateways[index];
            let off = gateway.cut || !gateway.alive;
            let known = self.observed.gateways.get(&gateway.name).is_some_and(|known| known.connected);
            if off && (gateway.linked || known) {
                gateway.detach(now);
                let observed = self.observed.gateways.get_mut(&gateway.name).unwrap();
                (observed.connected, observed.last_seen) = (false, now);
                self.quiet_until = None;
            } else if !off && !gateway.linked && soon {
                gateway.linked = true;
                let known = self.observed.gateways.get(&gateway.name);
                let observed = GatewayObserved {
                    connected: true,
                    first_heard: known.map_or(now, |known| known.first_heard),
                    last_seen: now,
                    version: "0".to_owned(),
                    report: gateway.report(),
                };
                self.observed.gateways.insert(gateway.name.clone(), observed);
                self.quiet_until = None;
            }
        }
    }

    /// Hosts and gateways do as they were told, and say how it is.
    pub fn peers_act(&mut self) {
        let (now, healed) = (self.now, self.healed);
        for index in 0..self.hosts.len() {
            let slow = self.lag > 0 && self.chance(3);
            while !slow && self.hosts[index].inbox.front().is_some_and(|(due, _)| *due <= now) {
                let (_, command) = self.hosts[index].inbox.pop_front().unwrap();
                let said = format!("{} takes up {}", self.hosts[index].name, command.id.0);
                let ended = self.hosts[index].take_up(command, now);
                self.note(said);
                if let Some((member, generation)) = ended {
                    self.stopped_by_command(&member, generation);
                }
            }
            let due = self.later();
            let host = &mut self.hosts[index];
            host.act(healed, now);
            if host.linked && !slow {
                let due = host.outbox.back().map_or(due, |(last, ..)| due.max(*last));
                let (answers, report) = (host.take_answers(), host.report());
                host.outbox.push_back((due, answers, report));
            }
        }
        let serving = self.serving();
        for index in 0..self.gateways.len() {
            let due = self.later();
            let (busy, gateway) = (self.busy, &mut self.gateways[index]);
            while !gateway.deaf && gateway.inbox.front().is_some_and(|(due, _)| *due <= now) {
                let (_, routes) = gateway.inbox.pop_front().unwrap();
                gateway.hear(routes);
            }
            gateway.act(&serving, busy);
            if gateway.linked {
                let due = gateway.outbox.back().map_or(due, |(last, _)| due.max(*last));
                let report = gateway.report();
                gateway.outbox.push_back((due, report));
            }
        }
    }

    /// What has arrived at the reconciler.
    pub fn listen(&mut self) {
        let now = self.now;
        for host in &mut self.hosts {
            while host.outbox.front().is_some_and(|(due, ..)| *due <= now) {
                let (_, answers, report) = host.outbox.pop_front().unwrap();
                let observed = self.observed.hosts.get_mut(&host.name).unwrap();
                observed.last_seen = now;
                if *observed.report != report {
                    observed.report = report.into();
                    self.quiet_until = None;
                }
                // As the link does: an answer counts once the report that follows it is heard.
                for answer in answers {
                    host.sent.retain(|id| *id != answer.id);
                    self.control.answer(&host.name, &answer);
                    self.control.answered(answer);
                    self.records = self.control.records().clone();
                    self.quiet_until = None;
                }
            }
        }
        for gateway in &mut self.gateways {
            while gateway.outbox.front().is_some_and(|(due, _)| *due <= now) {
                let (_, report) = gateway.outbox.pop_front().unwrap();
                let observed = self.observed.gateways.get_mut(&gateway.name).unwrap();
                observed.last_seen = now;
                if observed.report != report {
                    observed.report = report;
                    self.quiet_until = None;
                }
            }
        }
    }

    pub fn tell_gateways(&mut self) {
        if !knows_what_serves(&self.world()) {
            return;
        }
        let routes = routes(&self.world());
        for index in 0..self.gateways.len() {
            let due = self.later();
            let gateway = &mut self.gateways[index];
            if gateway.linked && gateway.told.as_ref() != Some(&routes) {
                gateway.told = Some(routes.clone());
                let due = gateway.inbox.back().map_or(due, |(last, _)| due.max(*last));
                gateway.inbox.push_back((due, routes.clone()));
            }
        }
    }

    /// When what is sent now arrives.
    pub fn later(&mut self) -> Timestamp {
        let lag = match self.lag {
            0 => 0,
            most => self.random() % (most + 1),
        };
        self.now + SignedDuration::from_secs(i64::try_from(lag).unwrap())
    }
}
