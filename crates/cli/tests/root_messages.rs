//! A plant's message server whose bands have classes and CPUs of their own.

mod bench;

use bench::{Bench, last_cpu};

#[test]
fn bands_have_the_class_and_the_cpu_that_the_plant_gives_them_and_allocate_nothing_while_they_serve() {
    let (cpu, name) = (last_cpu(), format!("rt{}", std::process::id()));
    let plant = format!(
        "[messages]\nname = \"{name}\"\nrequire_rt = true\nbands = [\n\
         {{ number = \"7\", class = \"fifo:40\", cpu = \"{cpu}\" }},\n{{ number = \"6\", class = \"rr:30\" }} ]\n\
         rules = [{{ access = \"deny\", verbs = [\"call\"], objects = \"secret_*\" }}]\n\
         [[equipment]]\nname = \"supply\"\nfile = \"supply.toml\"\nserver = \"{name}\"\nafter = [\"{name}\"]\n"
    );
    let bench = Bench::new("root-messages", &plant);
    std::fs::write(
        bench.dir.join("supply.toml"),
        "[manager]\nname = \"supply\"\n\
         [[device]]\nname = \"ps_1\"\ndriver = \"power-supply\"\n\
         [[map]]\nverb = \"put\"\nobject = \"sr_ps_{n}\"\ncomplement = \"{value}A\"\ndevice = \"ps_{n}\"\npoint = \"setpoint\"\n\
         [[map]]\nverb = \"get\"\nobject = \"sr_ps_{n}\"\ncomplement = \"current\"\ndevice = \"ps_{n}\"\npoint = \"current\"\n",
    )
    .unwrap();
    bench.ok(&["up", ".", "--detach"]);
    let send = |band: &str, lines: &[&str]| {
        let words = ["msg", "send", "--server", &name, "--band", band];
        bench.run(&words.into_iter().chain(lines.iter().copied()).collect::<Vec<_>>())
    };
    bench.until("the manager serves", || send("7", &["get/sr_ps_1/current"]).status.success());

    // Name, class (1 fifo, 2 rr, 0 other), priority and CPUs of each lane, as the kernel has them.
    let tasks = std::fs::read_dir(format!("/proc/{}/task", bench.pid(&name))).unwrap();
    let mut bands: Vec<_> = tasks
        .filter_map(|task| {
            let task = task.unwrap().path();
            let stat = std::fs::read_to_string(task.join("stat")).unwrap();
            let (head, tail) = stat.rsplit_once(") ").unwrap();
            let band = head.split_once("(band-")?.1.to_owned();
            let fields: Vec<&str> = tail.split(' ').collect();
            let status = std::fs::read_to_string(task.join("status")).unwrap();
            let cpus = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:\t")).unwrap().to_owned();
            Some((band, fields[38].to_owned(), fields[37].to_owned(), cpus))
        })
        .collect();
    bands.sort();
    assert_eq!(bands.len(), 8, "{bands:?}");
    let class = |band: usize| (bands[band].1.as_str(), bands[band].2.as_str());
    assert_eq!((class(7), bands[7].3.as_str()), (("1", "40"), cpu.as_str()), "{bands:?}");
    assert_eq!(class(6), ("2", "30"), "{bands:?}");
    assert!((0..6).all(|band| class(band) == ("0", "0") && bands[band].3 != cpu), "{bands:?}");

    // Requests, replies, refusals, batches, a lock, people who come and go: all on lanes that are counted.
    for band in ["7", "6", "0"] {
        for current in ["1A", "2A", "3A"] {
            assert!(send(band, &[&format!("put/sr_ps_1/{current}"), "get/sr_ps_1/current"]).status.success());
        }
        assert!(send(band, &["--batch", "put/sr_ps_1/4A", "get/sr_ps_1/current"]).status.success());
        assert!(send(band, &["lock/sr_ps_1", "put/sr_ps_1/5A", "unlock/sr_ps_1"]).status.success());
        assert!(!send(band, &["call/secret_1/x", "get/nobody/x", "put/sr_ps_1/x"]).status.success());
    }
    let counters = bench.ok(&["msg", "send", "--server", &name, "describe/server"]);
    assert!(counters.contains(" allocations=0 "), "{counters}");
    assert!(!counters.contains(" requests=0 "), "{counters}");
    bench.ok(&["down"]);
}
