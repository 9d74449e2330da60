//! Agents and a coordinator as processes: on ports of the loopback, and in networks of their own.

use std::fs;
use std::io::{BufRead, BufReader, Lines};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, ChildStdout, Command, Stdio};

use pinstripe_testing::in_own_networks;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::stand::Stand;

const TOKEN: &str = "0123456789abcdef0123456789abcdef";
const SMALL: &str = "--total-size 256K --files 2 --block-size 4K --modes rndrd --run-time 0.05 --patience 0 \
                     --accept-noise --seed 7";

/// An agent that is ended with the test.
struct Agent {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    address: String,
}

impl Agent {
    fn start(stand: &Stand, listen: &str, dir: &str) -> Agent {
        Agent::by(Agent::command(stand, listen, dir))
    }

    fn command(stand: &Stand, listen: &str, dir: &str) -> Command {
        fs::create_dir_all(stand.path(dir)).unwrap();
        stand.command(&format!("lab agent --listen {listen} --token-file token --dir {dir}"))
    }

    fn by(mut command: Command) -> Agent {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = lines.next().unwrap().unwrap();
        let address = first.strip_prefix("listening at ").and_then(|it| it.split_once(';'));
        let address = address.unwrap_or_else(|| panic!("{first}")).0.to_owned();
        Agent { child, lines, address }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// The next line with this in it.
    fn line(&mut self, part: &str) -> String {
        let found = self.lines.by_ref().map(Result::unwrap).find(|line| line.contains(part));
        found.unwrap_or_else(|| panic!("the agent has ended without '{part}'"))
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn stand() -> Stand {
    let stand = Stand::new();
    fs::write(stand.path("token"), TOKEN).unwrap();
    fs::set_permissions(stand.path("token"), fs::Permissions::from_mode(0o600)).unwrap();
    stand
}

fn saved(stand: &Stand, name: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(stand.path(name)).unwrap()).unwrap()
}

fn is_empty(stand: &Stand, dir: &str) -> bool {
    fs::read_dir(stand.path(dir)).unwrap().next().is_none()
}

#[test]
fn three_agents_on_the_loopback_give_results_by_host_and_in_sum() {
    let stand = stand();
    let mut agents: Vec<Agent> =
        ["a", "b", "c"].map(|dir| Agent::start(&stand, "127.0.0.1:0", dir)).into();
    let names: Vec<String> = agents.iter().map(|it| it.address.clone()).collect();
    let all = format!("--agents {} --token-file token", names.join(","));
    let dry = stand.run(&format!("lab run fileio {SMALL} {all} --dry-run"));
    assert_eq!((dry.code, dry.err.as_str()), (0, ""));
    for name in &names {
        assert!(dry.out.contains(&format!("(at {name})")), "{}", dry.out);
    }
    let ran = stand.run(&format!("lab run fileio {SMALL} {all} --runs 2 --warm-up 1 --out r.json"));
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    for part in [
        "the clock of this host differs by",
        "lab fileio",
        "by host",
        "round trip",
        "agents 127.0.0.1:",
    ] {
        assert!(ran.out.contains(part), "{part}\n{}", ran.out);
    }
    let results = saved(&stand, "r.json");
    assert_eq!(results["is_complete"], true);
    let hosts = results["hosts"].as_array().unwrap();
    assert_eq!(hosts.iter().map(|it| it["address"].as_str().unwrap()).collect::<Vec<_>>(), names);
    let run = &results["variants"][0]["runs"][0];
    let parts = run["parts"].as_array().unwrap();
    let sum: f64 = parts.iter().map(|it| it["run"]["value"].as_f64().unwrap()).sum();
    let value = run["value"].as_f64().unwrap();
    assert!(parts.len() == 3 && (sum - value).abs() < 1e-6 * value, "{run}");
    // Shown again, in whole and by host, as a page, and compared.
    let shown = stand.run("lab show r.json").out;
    for part in ["to repeat the measurement, run:", "--agents", "--token-file token", "by host"] {
        assert!(shown.contains(part), "{part}\n{shown}");
    }
    let own = stand.run(&format!("lab show r.json --host {}", names[1]));
    assert!(own.code == 0 && !own.out.contains("by host"), "{}{}", own.out, own.err);
    assert_eq!(stand.run("lab show r.json --host nowhere").code, 11);
    let events = stand.run("lab show r.json --json");
    assert_eq!((events.events_of("lab_host").len(), events.events_of("lab_part").len()), (3, 3));
    assert_eq!(events.summary()["hosts"], 3);
    assert_eq!(stand.run("lab report r.json --out p.html").code, 0);
    let page = fs::read_to_string(stand.path("p.html")).unwrap();
    assert!(page.contains("by host") && page.contains(&names[2]));
    assert_eq!(stand.run("lab show p.html --json").events_of("lab_host").len(), 3);
    // Every agent served two coordinators, and left nothing.
    for (agent, dir) in agents.iter_mut().zip(["a", "b", "c"]) {
        for _ in 0..2 {
            let line = agent.line("has disconnected");
            assert!(line.ends_with("has disconnected"), "{line}");
        }
        assert!(is_empty(&stand, dir));
        agent.signal(Signal::TERM);
        agent.line("stopped");
    }
}

#[test]
fn a_killed_agent_is_named_and_what_was_measured_is_kept() {
    let stand = stand();
    let mut agents: Vec<Agent> =
        ["a", "b", "c"].map(|dir| Agent::start(&stand, "127.0.0.1:0", dir)).into();
    let names: Vec<String> = agents.iter().map(|it| it.address.clone()).collect();
    let line = format!(
        "lab run fileio {SMALL} --agents {} --token-file token --runs 900 --out r.json --json",
        names.join(",")
    );
    let mut command = stand.command(&line);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    lines.find(|line| line.contains("\"lab_run\"")).unwrap();
    agents[1].signal(Signal::KILL);
    let rest: Vec<Value> = lines.map(|line| serde_json::from_str(&line).unwrap()).collect();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let hosts: Vec<&Value> = rest.iter().filter(|it| it["event"] == "lab_host").collect();
    assert!(hosts[1]["lost"].is_string() && hosts[0]["lost"].is_null(), "{hosts:?}");
    let error = rest.iter().find(|it| it["event"] == "error").unwrap();
    assert!(error.to_string().contains(&names[1]), "{error}");
    let results = saved(&stand, "r.json");
    let runs = results["variants"][0]["runs"].as_array().unwrap();
    assert!(runs.len() >= 2 && results["is_complete"] == false);
    let last = runs.last().unwrap();
    assert!(last["parts"][1]["run"].is_null() && last["parts"][0]["run"].is_object(), "{last}");
    assert_eq!(last["disturbances"][0]["kind"], "host_lost");
    let shown = stand.run("lab show r.json").out;
    assert!(shown.contains("LOST") && shown.contains(&format!("{} was lost", names[1])), "{shown}");
    for (at, dir) in [(0, "a"), (2, "c")] {
        agents[at].line("has disconnected");
        assert!(is_empty(&stand, dir));
    }
}

#[test]
fn tokens_and_directories_are_refused_with_the_way_out() {
    let stand = stand();
    fs::create_dir(stand.path("a")).unwrap();
    fs::write(stand.path("open"), TOKEN).unwrap();
    fs::set_permissions(stand.path("open"), fs::Permissions::from_mode(0o644)).unwrap();
    let refused = stand.run("lab agent --listen 127.0.0.1:0 --token-file open --dir a");
    assert_eq!(refused.code, 14);
    assert!(
        refused.err.contains("mode 644") && refused.err.contains("chmod 600"),
        "{}",
        refused.err
    );
    let line = "lab agent --listen 127.0.0.1:0 --token-file token --dir nowhere";
    assert_eq!(stand.run(line).code, 11);
    assert_eq!(stand.run("lab agent --listen 127.0.0.1:0 --token-file token").code, 2);
    assert_eq!(stand.run("lab run fileio --agents 127.0.0.1:1").code, 2, "a token is needed");
    let agent = Agent::start(&stand, "127.0.0.1:0", "a");
    fs::write(stand.path("other"), TOKEN.replace('0', "x")).unwrap();
    fs::set_permissions(stand.path("other"), fs::Permissions::from_mode(0o600)).unwrap();
    let with = |token: &str, rest: &str| {
        let address = &agent.address;
        stand.run(&format!("lab run fileio {SMALL} --agents {address} --token-file {token} {rest}"))
    };
    let wrong = with("other", "");
    assert_eq!(wrong.code, 17);
    assert!(wrong.err.contains(&agent.address), "{}", wrong.err);
    for outside in ["--dir ..", "--dir /", "--device /dev/null"] {
        let ran = with("token", outside);
        assert_eq!(ran.code, 14, "{outside}: {}", ran.err);
        assert!(ran.err.contains(&agent.address), "{}", ran.err);
    }
    assert!(is_empty(&stand, "a"));
}

#[test]
#[ignore = "with --all: it waits for 17 s"]
fn agents_in_networks_of_their_own_and_one_whose_line_is_cut() {
    in_own_networks("agents in networks of their own", 3, |networks| {
        let stand = stand();
        let mut agents: Vec<Agent> = networks
            .iter()
            .zip(["a", "b", "c"])
            .map(|(network, dir)| {
                let listen = format!("{}:7411", network.address);
                let command = Agent::command(&stand, &listen, dir);
                network.within(|| Agent::by(command))
            })
            .collect();
        let names: Vec<&str> = agents.iter().map(|it| it.address.as_str()).collect();
        let all = format!("--agents {} --token-file token", names.join(","));
        let ran = stand.run(&format!("lab run fileio {SMALL} {all} --runs 2 --out r.json --json"));
        assert_eq!((ran.code, ran.err.as_str()), (0, ""));
        assert_eq!(ran.events_of("lab_part").len(), 3);
        agents.iter_mut().for_each(|it| drop(it.line("has disconnected")));
        // A line that is cut says nothing: only deadlines end it, on both sides.
        let cut = format!(
            "lab run fileio {SMALL} {all} --runs 900 --agent-timeout 5 --out s.json --json"
        );
        let mut child = stand.command(&cut).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        lines.find(|line| line.contains("\"lab_run\"")).unwrap();
        networks[2].set_up(false);
        lines.for_each(drop);
        assert_eq!(child.wait().unwrap().code(), Some(1));
        let results = saved(&stand, "s.json");
        let why = results["hosts"][2]["lost"].as_str().unwrap();
        assert!(why.contains("did not answer in time"), "{why}");
        assert!(agents[2].line("has disconnected").contains("did not answer in time"));
        assert!(is_empty(&stand, "c"), "the agent removes what it made by itself");
    });
}
