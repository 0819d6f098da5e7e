//! One measurement: a fresh server, a load, and what it has cost.

use std::io;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use crate::calibrate::{Calibration, TOLERANCE};
use crate::calls::Counter;
use crate::catalogue::{Load, Peer, Scenario};
use crate::load::{Echo, Idle, Orders, Packets, Phase, Short, Until};
use crate::process::{Server, own_cpu_nanoseconds};
use crate::results::{Calls, Sample, Settings};

/// A server to be measured.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) peer: &'static Peer,
    pub(crate) binary: PathBuf,
    pub(crate) log: PathBuf,
}

impl Target {
    /// Measures it, again if the machine was not calm, and keeps the calmest.
    pub(crate) fn measure(
        &self,
        scenario: &Scenario,
        round: usize,
        settings: &Settings,
        calibration: &mut Calibration,
    ) -> io::Result<Sample> {
        let mut best: Option<(f64, Sample)> = None;
        for attempt in 1.. {
            let before = calibration.measure()?;
            let mut sample = self.measure_once(scenario, settings)?;
            sample.speed = [before, calibration.measure()?];
            sample.round = round;
            let deviation = calibration.deviation(&sample.speed);
            if best.as_ref().is_none_or(|(other, _)| deviation < *other) {
                best = Some((deviation, sample));
            }
            if let Some((deviation, sample)) = &mut best {
                sample.attempts = attempt;
                sample.noisy = *deviation > TOLERANCE;
                if !sample.noisy || attempt > settings.repeats || !calibration.may_repeat() {
                    break;
                }
            }
        }
        best.map(|(_, sample)| sample)
            .ok_or_else(|| io::Error::other("nothing was measured"))
    }

    fn measure_once(&self, scenario: &Scenario, settings: &Settings) -> io::Result<Sample> {
        let server = self.start(scenario)?;
        let mut load = Running::start(&server, scenario.load)?;
        let resident_bytes_before = server.resident_bytes()?;
        load.warm_up(settings)?;
        thread::sleep(SETTLE);
        let (server_before, own_before) = (server.cpu_nanoseconds()?, own_cpu_nanoseconds()?);
        let phase = load.run(settings)?;
        let own_after = own_cpu_nanoseconds()?;
        // The last completions and closes belong to the load. The system adds a thread's time up when it sleeps.
        thread::sleep(SETTLE);
        let server_after = server.cpu_nanoseconds()?;
        Ok(Sample {
            scenario: scenario.key,
            peer: self.peer.name.to_owned(),
            round: 0,
            operations: phase.operations,
            seconds: phase.elapsed.as_secs_f64(),
            server_cpu_ns: server_after - server_before,
            generator_cpu_ns: own_after - own_before,
            latency_ns: phase.latency(),
            resident_bytes: server.resident_bytes()?,
            resident_bytes_before,
            connections: scenario.connections(),
            speed: Default::default(),
            attempts: 1,
            noisy: false,
        })
    }

    /// Counts its system calls under the same load.
    pub(crate) fn count_calls(
        &self,
        scenario: &Scenario,
        settings: &Settings,
        counter: Counter,
    ) -> io::Result<Calls> {
        let server = self.start(scenario)?;
        let mut load = Running::start(&server, scenario.load)?;
        load.warm_up(settings)?;
        let shorter = Settings {
            seconds: settings.seconds.min(COUNTED_SECONDS),
            short_connections: settings.short_connections.min(COUNTED_CONNECTIONS),
            ..settings.clone()
        };
        let (calls, phase) = counter.count(server.pid(), || load.run(&shorter))?;
        Ok(Calls {
            scenario: scenario.key,
            peer: self.peer.name.to_owned(),
            operations: phase.operations,
            calls,
        })
    }

    fn start(&self, scenario: &Scenario) -> io::Result<Server> {
        Server::start(&self.binary, self.peer, scenario, &self.log)
    }
}

/// A load that is connected.
enum Running {
    Echo(Echo),
    Short(Short),
    Packets(Packets),
    Idle(Idle),
    Orders(Orders),
}

impl Running {
    fn start(server: &Server, load: Load) -> io::Result<Self> {
        let address = server.address;
        Ok(match load {
            Load::Echo {
                connections,
                size,
                depth,
            } => Self::Echo(Echo::connect(address, connections, size, depth)?),
            Load::Short { at_once, .. } => Self::Short(Short::new(address, at_once)?),
            Load::Packets { connections } => Self::Packets(Packets::connect(address, connections)?),
            Load::Idle { connections } => Self::Idle(Idle::prepare(address, connections)?),
            Load::Orders => Self::Orders(Orders::connect(address)?),
        })
    }

    fn warm_up(&mut self, settings: &Settings) -> io::Result<()> {
        let tenth = Until::after(Duration::from_secs_f64(settings.seconds / 10.0));
        match self {
            Self::Echo(echo) => echo.run(tenth).map(drop),
            Self::Short(short) => {
                let few = Until::Operations(settings.short_connections / 10);
                short.run(few).map(drop)
            }
            Self::Packets(packets) => packets.run(tenth).map(drop),
            Self::Idle(idle) => idle.open(),
            Self::Orders(orders) => orders.run(tenth).map(drop),
        }
    }

    fn run(&mut self, settings: &Settings) -> io::Result<Phase> {
        let end = Until::after(Duration::from_secs_f64(settings.seconds));
        match self {
            Self::Echo(echo) => echo.run(end),
            Self::Short(short) => short.run(Until::Operations(settings.short_connections)),
            Self::Packets(packets) => packets.run(end),
            Self::Idle(idle) => idle.rest(),
            Self::Orders(orders) => orders.run(end),
        }
    }
}

/// Until a server that has nothing to do any more sleeps.
const SETTLE: Duration = Duration::from_millis(5);
const COUNTED_SECONDS: f64 = 0.25;
const COUNTED_CONNECTIONS: u64 = 2_000;
