use std::fs;

use clap::{Arg, FromArgMatches};

use super::*;
use crate::args::{Command as Asked, Drive, Manager};

fn words(line: &str) -> Vec<OsString> {
    line.split(' ').map(OsString::from).collect()
}

/// Expands a line with this text as the default file.
fn with_file(line: &str, text: &str) -> Result<Expanded, Failure> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x.toml");
    fs::write(&file, text).unwrap();
    expand_with(words(line), |_| file.clone())
}

fn parsed(expanded: &Expanded) -> Asked {
    let matches = Cli::command().try_get_matches_from(&expanded.words).expect("it is right");
    Cli::from_arg_matches(&matches).expect("it is right").command
}

#[test]
fn flags_win_over_the_file_and_the_file_over_defaults() {
    let text = "dir = \"/d\"\nlisten = [\"10.0.0.1:1\", \"10.0.1.1:1\"]\nrail = \"10Gbit/s\"\n\
                no-calibration = true\nscrub-rate = 5\nhost = \"h\"\n";
    let expanded = with_file("braid drive serve --host=x --scrub-rate 1M", text).unwrap();
    let Asked::Drive(Drive::Serve(serve)) = parsed(&expanded) else { panic!("another command") };
    assert_eq!(serve.listen, ["10.0.0.1:1", "10.0.1.1:1"]);
    assert_eq!(
        (serve.dir.to_str(), serve.host.as_deref(), serve.scrub_rate),
        (Some("/d"), Some("x"), 1 << 20)
    );
    assert!(serve.options.no_calibration && serve.options.rail == Some(1_250_000_000));
    assert_eq!(serve.clean_share, 25, "a default");
    // A list in the command line takes the place of the file's as a whole.
    let expanded = with_file("braid drive serve --listen 10.0.0.9:1", text).unwrap();
    let Asked::Drive(Drive::Serve(serve)) = parsed(&expanded) else { panic!("another command") };
    assert_eq!(serve.listen, ["10.0.0.9:1"]);
}

#[test]
fn what_is_wrong_is_named_with_its_line() {
    for (text, line, why) in [
        ("dir = \"/d\"\nlissen = [\"a:1\"]\n", 2, "the nearest key is listen"),
        ("lost_after = 3\n", 1, "the nearest key is lost-after"),
        ("\n\nlost-after = \"soon\"\n", 3, "soon"),
        ("dir = 3\n", 1, "dir must be a text in quotes"),
        ("lost-after = true\n", 1, "lost-after must be a number"),
        ("lost-after = -1\n", 1, "lost-after must be a number"),
        ("lost-after = [1]\n", 1, "lost-after must be a number"),
        ("dir = \"/d\"\ndir = \"/e\"\n", 2, "duplicate key"),
        ("dir = \"/d\"\nlisten = \n", 2, ""),
        ("log = \"json\"\nlog-format = \"text\"\n", 2, "twice"),
        ("log = \"yaml\"\n", 1, "yaml"),
        ("lifeline = true\n", 1, "no key"),
        ("config = \"other\"\n", 1, "no key"),
    ] {
        let said = with_file("braid manager serve", text).expect_err(text).to_string();
        assert!(said.contains(&format!("x.toml, line {line}:")) && said.contains(why), "{text:?}: {said}");
    }
    let said = with_file("braid drive serve", "no-calibration = \"yes\"").unwrap_err().to_string();
    assert!(said.contains("no-calibration must be true or false"), "{said}");
    let said = with_file("braid drive serve", "listen = [1]").unwrap_err().to_string();
    assert!(said.contains("list of such texts"), "{said}");
}

/// A text that a flag takes, found by trying.
fn sample(keys: &keys::Keys, arg: &Arg) -> String {
    let choices = arg.get_possible_values();
    let choices = choices.iter().map(|choice| format!("\"{}\"", choice.get_name()));
    let usual = [
        "true",
        "7",
        "\"10Gbit/s\"",
        "\"a:1\"",
        "\"etcd://a:1\"",
        "\"cubic\"",
        "\"tcp\"",
        "\"flash,iops=20000,read=1GB/s,write=500MB/s,sync=100us\"",
    ];
    let name = keys::name_of(arg);
    let mut all = choices.chain(usual.map(str::to_owned));
    all.find(|value| keys.parse(Path::new("x"), &format!("{name} = {value}\n")).is_ok())
        .unwrap_or_else(|| panic!("no text fits {name}: add one to the samples"))
}

#[test]
fn every_flag_of_a_command_is_a_key_of_its_file() {
    for serving in SERVING {
        let definition = relax(Cli::command(), serving.path);
        let keys = keys::Keys::of(&definition, serving);
        let command =
            serving.path.iter().fold(&definition, |above, name| above.find_subcommand(name).unwrap());
        let mut count = 0;
        for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
            if ["config", "no_config", "check"].contains(&arg.get_id().as_str()) {
                continue;
            }
            let value = sample(&keys, arg);
            let mut text = format!("{} = {value}\n", keys::name_of(arg));
            if keys::name_of(arg) == "directory" {
                // What is given by its place needs what is before it.
                text.push_str("volume = \"braid://main\"\n");
            }
            let line = format!("braid {}", serving.path.join(" "));
            let expanded = with_file(&line, &text).unwrap_or_else(|failure| panic!("{text}: {failure}"));
            let origin = expanded.origins.get(arg.get_id().as_str());
            assert!(matches!(origin, Some(Origin::File { line: 1, .. })), "{text}: {origin:?}");
            // It comes out of the parser as if it had been typed.
            let matches = definition.clone().try_get_matches_from(&expanded.words).unwrap();
            let own = leaf(&matches, serving.path).unwrap();
            assert_eq!(own.value_source(arg.get_id().as_str()), Some(ValueSource::CommandLine), "{text}");
            count += 1;
        }
        assert!(count > 5, "{serving:?}");
    }
}

#[test]
fn a_mounts_names_and_cluster_are_keys_too() {
    let text = "volume = \"braid://main\"\ndirectory = \"/mnt\"\ncluster = \"/c.toml\"\nread-only = true\n\
                detach = true\n";
    let expanded = with_file("braid mount", text).unwrap();
    let Asked::Mount(mount) = parsed(&expanded) else { panic!("another command") };
    assert!(mount.read_only && mount.detach && mount.volume == "braid://main");
    assert_eq!(mount.directory.to_str(), Some("/mnt"));
    // A flag that excludes a key of the file wins.
    let expanded = with_file("braid --json mount --remount -- braid://main /mnt", text).unwrap();
    let Asked::Mount(mount) = parsed(&expanded) else { panic!("another command") };
    assert!(mount.remount && !mount.detach && mount.read_only);
}

#[test]
fn other_commands_read_no_file() {
    for line in ["braid status", "braid drive ls", "braid --cluster mount ls", "braid drive", "braid"] {
        let expanded = with_file(line, "nonsense").unwrap();
        assert_eq!(expanded.words, words(line));
        assert!(expanded.serving.is_none(), "{line}");
    }
    for line in ["braid manager serve --no-config --dir /d", "braid --cluster c manager serve --help"] {
        assert_eq!(with_file(line, "nonsense").unwrap().words, words(line));
    }
    let missing = expand(words("braid manager serve --config /nonexistent/m.toml")).unwrap_err().to_string();
    assert!(missing.contains("/nonexistent/m.toml"), "{missing}");
}

#[test]
fn a_directory_remembers_where_its_server_was() {
    let dir = tempfile::tempdir().unwrap();
    let line = |more: &str| format!("braid drive serve --dir {}{more}", dir.path().display());
    let start = |more: &str| {
        let expanded = with_file(&line(more), "").unwrap();
        expanded.told.remember();
        expanded
    };
    let serve = |expanded: &Expanded| match parsed(expanded) {
        Asked::Drive(Drive::Serve(serve)) => serve,
        _ => panic!("another command"),
    };
    start(" --listen 0.0.0.0:7 --advertise b:7 --host b --scrub-rate 3 --capacity 1G");
    let second = start("");
    let served = serve(&second);
    assert_eq!((served.listen, served.advertise), (vec!["0.0.0.0:7".to_owned()], vec!["b:7".to_owned()]));
    assert_eq!((served.host.as_deref(), served.capacity), (Some("b"), Some(1 << 30)));
    assert_eq!(served.scrub_rate, 8 << 20, "how a drive works, each start is told");
    assert_eq!(second.origins.get("host"), Some(&Origin::Told));
    assert!(second.told.changes().is_empty());
    // Another address ends what was advertised for the old one.
    let moved = start(" --listen 10.0.0.1:7");
    assert!(serve(&moved).advertise.is_empty() && moved.told.changes().len() == 2, "{:?}", moved.told);
    assert!(serve(&start("")).advertise.is_empty());
    assert_eq!(serve(&start(" --no-config")).host, None);
}

#[test]
fn a_manager_remembers_too_and_check_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let line = format!("braid manager serve --dir {}", dir.path().display());
    with_file(&format!("{line} --lost-after 7"), "").unwrap().told.remember();
    let expanded = with_file(&line, "listen = \"h:1\"").unwrap();
    let Asked::Manager(Manager::Serve(serve)) = parsed(&expanded) else { panic!("another command") };
    assert_eq!((serve.lost_after, serve.listen.as_str()), (7, "h:1"));
    let shown = effective::text(&expanded).unwrap();
    for part in [
        "lost-after = 7  # remembered\n",
        "x.toml:1\n",
        "log-format = \"text\"  # default\n",
        "# advertise is not given\n",
    ] {
        assert!(shown.contains(part), "{part} is not in {shown}");
    }
    assert!(shown.contains("  # --dir\n"), "{shown}");
}

#[test]
fn what_never_changes_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let line = |more: &str| format!("braid drive serve --dir {}{more}", dir.path().display());
    with_file(&line(" --host h --rack r1"), "").unwrap().told.remember();
    for fine in ["", " --rack r1", " --host other"] {
        assert!(with_file(&line(fine), "").is_ok(), "{fine}");
    }
    for said in [with_file(&line(" --rack r2"), ""), with_file(&line(""), "rack = \"r2\"")] {
        let said = said.unwrap_err().to_string();
        assert!(
            said.contains("\"r1\"") && said.contains("\"r2\"") && said.contains("leave --rack out"),
            "{said}"
        );
    }
}
