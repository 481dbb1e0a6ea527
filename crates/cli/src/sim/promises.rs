//! `braid sim run` for specs of promises.

use std::time::Instant;

use braid_sim::promises::{
    ClassOutcome, Overloaded, PromisesOutcome, PromisesSpec, Share, csv, run as simulate,
};
use braid_sim::report::{Ran, field};
use braid_sim::spec::{Point, points};

use super::{all, in_background, say_speed, threads};
use crate::args::SimRun;
use crate::output::documents::{prepare_out, write};
use crate::output::exit::{Exit, Failure};
use crate::output::rate;
use crate::output::report::{Report, print, table};
use crate::output::size;

/// Simulates what the text says, and tells the results as asked for.
pub(super) async fn run(asked: &SimRun, text: &str, report: Report) -> Result<(), Failure> {
    prepare_out(asked.out.as_deref())?;
    let wrong = |why: String| Failure::new(Exit::Usage, format!("read {}", asked.spec.display()), why);
    if asked.parts.is_some() {
        return Err(wrong("a spec of promises has its own disk and link: leave --parts out".to_owned()));
    }
    let spec = PromisesSpec::parse(text).map_err(|error| wrong(error.to_string()))?;
    let work = points(text, &spec).map_err(|error| wrong(error.to_string()))?;
    let threads = threads(asked.threads);
    let began = Instant::now();
    let simulate =
        |point: &Point<PromisesSpec>| Ran { values: point.values.clone(), outcome: simulate(&point.spec) };
    let ran = in_background(move |stop| all(&work, threads, stop, simulate)).await?;
    let ran = ran.into_iter().map(ended).collect::<Result<Vec<_>, Failure>>()?;
    say_speed(ran.iter().map(|one| one.outcome.events).sum(), began.elapsed().as_secs_f64());
    if let Some(out) = &asked.out {
        write(out, &[("sim.csv", csv(&ran))])?;
    }
    if asked.csv && !report.json {
        return print(&csv(&ran));
    }
    let title = if spec.title.is_empty() { asked.spec.display().to_string() } else { spec.title };
    report.facts(&ran, |ran| format!("{title}\n\n{}", shown(ran)))
}

/// The outcome of a point, or why its run ended before its time.
fn ended(ran: Ran<Result<PromisesOutcome, Overloaded>>) -> Result<Ran<PromisesOutcome>, Failure> {
    let Ran { values, outcome } = ran;
    match outcome {
        Ok(outcome) => Ok(Ran { values, outcome }),
        Err(overloaded) => {
            let at =
                values.iter().map(|(key, value)| format!(" {key} = {}", field(value))).collect::<String>();
            Err(Failure::new(Exit::Failed, format!("simulate{at}"), overloaded.to_string()))
        }
    }
}

/// Formats the points: one in full, several as one table.
fn shown(ran: &[Ran<PromisesOutcome>]) -> String {
    match ran {
        [only] if only.values.is_empty() => one(&only.outcome),
        several => sweep(several),
    }
}

fn one(outcome: &PromisesOutcome) -> String {
    let header = [
        "STREAMS",
        "ASKED",
        "ADMITTED",
        "SCHEME",
        "UNIT",
        "RATE",
        "PERIODS",
        "LATE",
        "WORST ms",
        "AT DRIVES",
        "BOUND",
        "START ms",
        "BOUND",
    ];
    let mut text = table(&header, &[1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12], outcome.classes.iter().map(class));
    text.push('\n');
    for class in &outcome.classes {
        if let Some(refusal) = &class.refusal {
            let offer = refusal.offered.map_or("nothing less either".to_owned(), |bytes| {
                #[expect(clippy::cast_precision_loss, reason = "a rate is shown with three digits")]
                let rate = bytes as f64;
                format!("{} would be admitted", rate::show(rate))
            });
            text.push_str(&format!("{} refused: {}; {offer}\n", class.name, refusal.why));
        }
    }
    let booked = match (outcome.booked, outcome.booked_worst) {
        (Some(healthy), Some(worst)) => {
            format!("booked {}, in the worst state {}", share(&healthy), share(&worst))
        }
        _ => "nothing booked, all are let in".to_owned(),
    };
    let used = 100.0 * outcome.streams_used;
    text.push_str(&format!("disks: {booked}; busy {}, {used:.1} % for streams\n", share(&outcome.busy)));
    if let Some(best) = &outcome.best_effort {
        let left = 100.0 * best.of_left;
        let rate = rate::show(best.bytes_per_second);
        text.push_str(&format!("best effort: {rate}, {left:.1} % of the disks' time that was left\n"));
    }
    if let Some(rebuild) = &outcome.rebuild {
        let took = rebuild.seconds.map_or("not done".to_owned(), |seconds| format!("{seconds:.2} s"));
        text.push_str(&format!("rebuild: {took}; by its rate {:.2} s\n", rebuild.eta_seconds));
    }
    text.push_str(&format!("{:.3} simulated seconds\n", outcome.seconds));
    text
}

fn share(share: &Share) -> String {
    format!("{:.1} % ({:.1} % the most)", 100.0 * share.mean, 100.0 * share.max)
}

fn class(class: &ClassOutcome) -> Vec<String> {
    let ms = |value: f64| format!("{value:.1}");
    vec![
        class.name.clone(),
        class.asked.to_string(),
        class.admitted.to_string(),
        class.scheme.clone().unwrap_or_default(),
        class.unit_bytes.map_or(String::new(), |bytes| size::show(u64::from(bytes))),
        rate::show(class.bytes_per_second),
        class.periods.to_string(),
        class.late_periods.to_string(),
        ms(class.worst_ms),
        ms(class.drives_worst_ms),
        ms(class.bound_ms),
        ms(class.start_ms),
        ms(class.start_bound_ms),
    ]
}

/// Formats a table with a row for each point.
fn sweep(ran: &[Ran<PromisesOutcome>]) -> String {
    let keys: Vec<String> = ran.first().map_or(Vec::new(), |first| {
        first.values.iter().map(|(key, _)| key.rsplit('.').next().unwrap_or(key).to_uppercase()).collect()
    });
    let mut header: Vec<&str> = keys.iter().map(String::as_str).collect();
    header.extend([
        "ASKED",
        "ADMITTED",
        "LATE",
        "BOOKED",
        "WORST",
        "BUSY",
        "BEST EFFORT",
        "REBUILD s",
        "ETA",
    ]);
    let right: Vec<usize> = (0..header.len()).collect();
    let rows = ran.iter().map(|one| {
        let outcome = &one.outcome;
        let percent = |share: Option<Share>| {
            share.map_or(String::new(), |share| format!("{:.1} %", 100.0 * share.mean))
        };
        let mut cells: Vec<String> = one.values.iter().map(|(_, value)| field(value)).collect();
        cells.extend([outcome.asked, outcome.admitted, outcome.late_periods].map(|count| count.to_string()));
        cells.extend([outcome.booked, outcome.booked_worst, Some(outcome.busy)].map(percent));
        cells.push(outcome.best_effort.map_or(String::new(), |best| rate::show(best.bytes_per_second)));
        let took = outcome.rebuild.and_then(|rebuild| rebuild.seconds);
        let eta = outcome.rebuild.map(|rebuild| rebuild.eta_seconds);
        cells.extend([took, eta].map(|time| time.map_or(String::new(), |time| format!("{time:.2}"))));
        cells
    });
    table(&header, &right, rows)
}
