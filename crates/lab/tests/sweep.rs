//! Sweeps: the same rows in whatever order they are computed, nothing lost, nothing twice.

use lastmeter_engine::{Parallel, Serial};
use lastmeter_lab::library::{Builtin, experiment};
use lastmeter_lab::run::{Runner, Watch};
use lastmeter_lab::sweep::{
    self, Factor, Plan, Report, Request, Row, Run, Schedule, Until, Width, design,
};
use lastmeter_ledger::columns::Columns;
use std::sync::Mutex;

/// A thread for each task.
struct Threads;

impl Parallel for Threads {
    fn run(&self, tasks: &mut [&mut (dyn FnMut() + Send)]) {
        std::thread::scope(|scope| tasks.iter_mut().for_each(|task| drop(scope.spawn(task))));
    }
}

const RATE: &str = "traffic.customers.poisson.rate=1 Gbit/s,4 Gbit/s,7 Gbit/s";

fn request(overs: &[&str], until: Option<&str>) -> Request {
    let factors: Vec<Factor> = overs.iter().map(|text| Factor::parse(text).unwrap()).collect();
    Request {
        experiment: "mm1".to_owned(),
        text: experiment("mm1").unwrap().to_owned(),
        sets: vec!["duration=2 ms".to_owned()],
        points: design::grid(&factors).unwrap(),
        factors,
        design: "grid".to_owned(),
        until: until.map(|text| Until::parse(text).unwrap()),
        ..Request::default()
    }
}

fn plan(overs: &[&str], until: Option<&str>) -> Plan {
    Plan::new(request(overs, until), &Builtin).unwrap()
}

/// Works until there are `stop_after` rows, and returns them.
fn rows(plan: &Plan, schedule: &Mutex<Schedule>, threads: usize, stop_after: usize) -> Vec<Row> {
    let watch = Watch::default();
    let parallel: &dyn Parallel = if threads == 1 { &Serial } else { &Threads };
    let runner = Runner { parallel, threads, library: &Builtin, watch: &watch };
    let rows: Mutex<Vec<Row>> = Mutex::default();
    let keep = |row: Row| {
        let mut rows = rows.lock().unwrap();
        rows.push(row);
        if rows.len() >= stop_after {
            watch.control.stop();
        }
        Ok(())
    };
    sweep::work(plan, schedule, runner, &keep).unwrap();
    rows.into_inner().unwrap()
}

fn sorted(mut rows: Vec<Row>) -> Vec<Row> {
    rows.sort_by_key(|row| (row.point, row.replicate));
    rows
}

fn whole(plan: &Plan, threads: usize) -> Vec<Row> {
    let schedule = Mutex::new(Schedule::new(plan));
    let found = rows(plan, &schedule, threads, usize::MAX);
    assert!(schedule.lock().unwrap().is_done());
    sorted(found)
}

#[test]
fn any_number_of_threads_makes_the_same_rows() {
    for until in [None, Some("latency 8 %")] {
        let plan = plan(&[RATE], until);
        let alone = whole(&plan, 1);
        assert_eq!(whole(&plan, 4), alone);
        assert!(alone.len() >= 3);
    }
}

#[test]
fn a_resumed_sweep_has_the_rows_of_an_uninterrupted_one() {
    let plan = plan(&[RATE], Some("latency 8 %"));
    let all = whole(&plan, 2);
    for left_after in [1, 7, all.len() - 1] {
        let schedule = Mutex::new(Schedule::new(&plan));
        let mut found = rows(&plan, &schedule, 2, left_after);
        // As read back from the files.
        let mut file = Vec::new();
        sweep::runs(&plan, &found).write("runs", &[], &mut file).unwrap();
        let back = sweep::runs_back(&plan, &Columns::read(file).unwrap()).unwrap();
        assert_eq!(back.len(), found.len());
        let schedule = Mutex::new(Schedule::resume(&plan, &back).unwrap());
        found.extend(rows(&plan, &schedule, 2, usize::MAX));
        assert_eq!(sorted(found), all, "left after {left_after}");
    }
}

#[test]
fn a_row_is_entered_once_and_only_in_its_own_plan() {
    let plan = plan(&[RATE], None);
    let all = whole(&plan, 1);
    let mut schedule = Schedule::resume(&plan, &all).unwrap();
    assert!(schedule.is_done() && schedule.take().is_none());
    assert!(schedule.enter(&all[0]).unwrap_err().contains("appears twice"));
    let foreign = Row { point: 3, ..all[0].clone() };
    assert!(schedule.enter(&foreign).unwrap_err().contains("not belong to this plan"));
    let mut twice = all.clone();
    twice.push(all[1].clone());
    assert!(Schedule::resume(&plan, &twice).unwrap_err().contains("appears twice"));
}

#[test]
fn points_run_until_their_intervals_are_narrow() {
    let plan = plan(&[RATE], Some("latency 8 %"));
    let all = whole(&plan, 2);
    let schedule = Schedule::resume(&plan, &all).unwrap();
    let report = Report::new(&plan, &all, &schedule);
    let mut counts = Vec::new();
    for point in &report.points {
        let interval = point.interval("latency").unwrap();
        assert!(interval.half_width.unwrap() <= 0.08 * interval.mean);
        counts.push(interval.count);
    }
    // A busier station varies more and needs more replicates.
    assert!(counts[2] > counts[0], "{counts:?}");
    assert_eq!(schedule.progress().0, counts.iter().sum::<u64>());
}

#[test]
fn a_point_whose_interval_stays_wide_is_given_up_and_named() {
    let mut request = request(&[RATE], None);
    let width = Width::Relative(1e-9);
    request.until = Some(Until { measure: "latency".to_owned(), width, most: 6 });
    let plan = Plan::new(request, &Builtin).unwrap();
    let all = whole(&plan, 2);
    assert_eq!(all.len(), 3 * 6);
    let schedule = Schedule::resume(&plan, &all).unwrap();
    assert_eq!(schedule.wide(), [0, 1, 2]);
    let report = Report::new(&plan, &all, &schedule);
    assert!(report.words().contains("not as precise as requested"), "{}", report.words());
}

#[test]
fn intervals_contain_the_theoretical_value() {
    // M/M/1 with mu = 1 per us: the mean time in the system is 1 / (mu - lambda).
    let overs = ["traffic.customers.poisson.rate=1.6 Gbit/s,4 Gbit/s"];
    let mut request = request(&overs, None);
    (request.sets, request.replicates) = (vec!["duration=20 ms".to_owned()], Some(12));
    let plan = Plan::new(request, &Builtin).unwrap();
    let all = whole(&plan, 2);
    let report = Report::new(&plan, &all, &Schedule::resume(&plan, &all).unwrap());
    for (point, lambda) in report.points.iter().zip([0.2, 0.5]) {
        let interval = point.interval("latency").unwrap();
        let theory = 1e-6 / (1.0 - lambda);
        let off = (interval.mean - theory).abs();
        // Twice the width, so that one seed in a thousand is outside, and not one in twenty.
        assert!(off < 2.0 * interval.half_width.unwrap(), "{} is not {theory}", interval.mean);
    }
}

#[test]
fn a_failed_run_is_a_row_with_the_reason() {
    // Each value is valid alone; the combination is not.
    let mut request = request(&["duration=1 ms,2 ms", "traffic.customers.start=0 s,1.5 ms"], None);
    request.sets = vec!["traffic.customers.stop=1.2 ms".to_owned()];
    let plan = Plan::new(request, &Builtin);
    // A start after the stop is found before anything runs ...
    let problems = plan.unwrap_err();
    assert!(problems[0].key.starts_with("traffic.customers"), "{problems:?}");
    // ... and two values that are wrong only together, when their point is run.
    let overs = ["traffic.customers.start=0 s,1 ms", "traffic.customers.stop=0.5 ms,1.5 ms"];
    let mut both = self::request(&overs, None);
    both.sets = vec!["duration=2 ms".to_owned()];
    let plan = Plan::new(both, &Builtin).unwrap();
    let all = whole(&plan, 2);
    let failed: Vec<u64> =
        all.iter().filter(|row| row.result.is_err()).map(|row| row.point).collect();
    assert_eq!(failed, [2], "a start of 1 ms with a stop of 0.5 ms");
    let table = sweep::runs(&plan, &all);
    assert_eq!(sweep::runs_back(&plan, &table).unwrap().len(), 4);
    let report = Report::new(&plan, &all, &Schedule::resume(&plan, &all).unwrap());
    assert_eq!((report.failed, report.json()["failed"].as_u64()), (1, Some(1)));
}

#[test]
fn a_wrong_value_is_found_before_anything_runs() {
    let wrong = |over: &str| {
        let problems = Plan::new(request(&[over], None), &Builtin).unwrap_err();
        problems[0].to_string()
    };
    assert!(wrong("traffic.customers.poisson.rate=1 Gbit/s,4").contains("has no unit"));
    assert!(wrong("traffic.customer.poisson.rate=1 Gbit/s").contains("did you mean `customers`?"));
    assert!(wrong("seed=1,2").contains("use --seeds N"));
}

#[test]
fn factors_are_numbers_in_si_units_where_they_are_all_of_one_kind() {
    use lastmeter_ledger::columns::Values;
    let overs = ["duration=1 ms,2000 us", "traffic.customers.class=0,1"];
    let mut request = request(&overs, None);
    request.sets.clear();
    let plan = Plan::new(request, &Builtin).unwrap();
    let table = sweep::runs(&plan, &whole(&plan, 1));
    assert_eq!(table.get("duration"), Some(&Values::Real(vec![0.001, 0.001, 0.002, 0.002])));
    assert_eq!(table.get("seed"), Some(&Values::Count(vec![1; 4])));
    let paths = sweep::paths(&plan, &whole(&plan, 1));
    assert_eq!(paths.rows(), 4);
    assert!(paths.get("latency_p99").is_some());
}

#[test]
fn a_plan_reads_back_from_json() {
    let plan = plan(&[RATE], Some("goodput 1 Mbit/s"));
    let back = Plan::from_json(&plan.to_json()).unwrap();
    assert_eq!((back.hash(), &back), (plan.hash(), &plan));
    let run = Run { point: 2, replicate: 3 };
    assert_eq!(plan.sets_of(run)[1..], ["traffic.customers.poisson.rate=7 Gbit/s", "seed=4"]);
    for wrong in ["{}", "[]", "null", &plan.to_json().replace("sweep-plan/1", "sweep-plan/9")] {
        assert!(Plan::from_json(wrong).is_err(), "{wrong}");
    }
}
