//! `--disk-model`: the device that a drive's disk is made as slow as.
//!
//! A kind, then what it costs: `spindle,op=8ms,read=200MB/s,write=180MB/s,sync=1ms` or
//! `flash,iops=20000,read=1GB/s,write=500MB/s,sync=100us`. A spindle's operation takes both its fixed time
//! and that of its bytes, one of flash the larger of the two.

use std::fmt;
use std::str::FromStr;

use braid_schedule::cost::SECOND_NS;
use braid_schedule::{Charge, DeviceCost, DirectionCost};
use braid_sim::units::{Rate, Span};

/// A modelled device, as users write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DiskModel(pub(crate) DeviceCost);

const FORM: &str = "write it like spindle,op=8ms,read=200MB/s,write=180MB/s,sync=1ms or \
                    flash,iops=20000,read=1GB/s,write=500MB/s,sync=100us";
/// The longest fixed time of an operation or a sync: longer, and a drive would seem to hang.
const SPAN_MAX: Span = Span(SECOND_NS);
/// The lowest rate, in bytes a second: with less, a unit would take minutes.
const RATE_MIN: u64 = 10_000;

impl FromStr for DiskModel {
    type Err = String;

    fn from_str(text: &str) -> Result<DiskModel, String> {
        let mut parts = text.split(',').map(str::trim);
        let charge = match parts.next() {
            Some("spindle") => Charge::Sum,
            Some("flash") => Charge::Larger,
            _ => return Err(format!("\"{text}\" begins with neither spindle nor flash: {FORM}")),
        };
        let mut given = Given::default();
        for part in parts {
            let Some((key, value)) = part.split_once('=') else {
                return Err(format!("\"{part}\" is not KEY=VALUE: {FORM}"));
            };
            given.take(key.trim(), value.trim())?;
        }
        let missing = |what: &str| format!("{what} is missing: {FORM}");
        let operation_ns = given.operation_ns.ok_or_else(|| missing("op= or iops="))?;
        let read = given.read.ok_or_else(|| missing("read="))?;
        let write = given.write.ok_or_else(|| missing("write="))?;
        let way = |bytes_per_second| DirectionCost { operation_ns, bytes_per_second };
        let sync_ns = given.sync_ns.unwrap_or_default();
        Ok(DiskModel(DeviceCost { charge, read: way(read), write: way(write), sync_ns }))
    }
}

/// The values of a model, as far as they were given.
#[derive(Debug, Default)]
struct Given {
    operation_ns: Option<u64>,
    read: Option<u64>,
    write: Option<u64>,
    sync_ns: Option<u64>,
}

impl Given {
    fn take(&mut self, key: &str, value: &str) -> Result<(), String> {
        let (slot, number) = match key {
            "op" => (&mut self.operation_ns, span(value)?),
            "iops" => (&mut self.operation_ns, SECOND_NS / iops(value)?),
            "read" => (&mut self.read, rate(value)?),
            "write" => (&mut self.write, rate(value)?),
            "sync" => (&mut self.sync_ns, span(value)?),
            _ => return Err(format!("\"{key}\" is no key of a disk model: {FORM}")),
        };
        if slot.replace(number).is_some() {
            return Err(format!("{key}={value}: this is given twice"));
        }
        Ok(())
    }
}

fn span(text: &str) -> Result<u64, String> {
    let span: Span = text.parse()?;
    if span > SPAN_MAX {
        return Err(format!("{text} is too long: an operation or a sync takes at most {SPAN_MAX}"));
    }
    Ok(span.0)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate is above 0, and clamped")]
fn rate(text: &str) -> Result<u64, String> {
    let Rate(rate) = text.parse()?;
    let bytes = rate.round().min(1e18) as u64;
    if bytes < RATE_MIN {
        return Err(format!("{text} is too slow: a modelled disk moves at least 10 KB/s"));
    }
    Ok(bytes)
}

fn iops(text: &str) -> Result<u64, String> {
    let iops = text.parse().ok().filter(|iops| (1..=SECOND_NS).contains(iops));
    iops.ok_or_else(|| format!("\"{text}\" is no number of operations a second, such as 20000"))
}

impl fmt::Display for DiskModel {
    #[expect(clippy::cast_precision_loss, reason = "rates are given with fewer digits")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DiskModel(cost) = self;
        let kind = if cost.charge == Charge::Sum { "spindle" } else { "flash" };
        let rate = |bytes: u64| Rate(bytes as f64);
        let read = rate(cost.read.bytes_per_second);
        let write = rate(cost.write.bytes_per_second);
        let operation = Span(cost.read.operation_ns);
        let sync = Span(cost.sync_ns);
        write!(f, "{kind},op={operation},read={read},write={write},sync={sync}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<DiskModel, String> {
        text.parse()
    }

    #[test]
    fn models() {
        let DiskModel(cost) = parse("spindle,op=8ms,read=200MB/s,write=180MB/s,sync=1ms").expect("a model");
        assert_eq!((cost.charge, cost.sync_ns), (Charge::Sum, 1_000_000));
        assert_eq!(cost.read, DirectionCost { operation_ns: 8_000_000, bytes_per_second: 200_000_000 });
        assert_eq!(cost.write.bytes_per_second, 180_000_000);
        let DiskModel(cost) = parse("flash, iops=20000, read=1Gbit/s, write=1MiB/s").expect("a model");
        assert_eq!((cost.charge, cost.sync_ns), (Charge::Larger, 0));
        assert_eq!(cost.write, DirectionCost { operation_ns: 50_000, bytes_per_second: 1 << 20 });
        assert_eq!(cost.read.bytes_per_second, 125_000_000);
    }

    #[test]
    fn what_is_shown_can_be_given_to_a_drive() {
        for text in [
            "spindle,op=8.3ms,read=210MB/s,write=180MB/s,sync=0ns",
            "flash,iops=30000,read=1.234567GB/s,write=123456789B/s,sync=100us",
        ] {
            let model = parse(text).expect("a model");
            assert_eq!(parse(&model.to_string()), Ok(model));
        }
    }

    #[test]
    fn nonsense_is_refused_in_one_line_that_says_how_to_write_it() {
        for (text, part) in [
            ("", "neither spindle nor flash"),
            ("tape,op=8ms,read=1MB/s,write=1MB/s", "neither spindle nor flash"),
            ("spindle,op=8ms,read=200MB/s", "write= is missing"),
            ("spindle,read=200MB/s,write=1MB/s", "op= or iops= is missing"),
            ("spindle,op=8ms,iops=100,read=1MB/s,write=1MB/s", "given twice"),
            ("spindle,op=8,read=1MB/s,write=1MB/s", "unit is ns"),
            ("spindle,op=-8ms,read=1MB/s,write=1MB/s", "negative"),
            ("spindle,op=2s,read=1MB/s,write=1MB/s", "too long"),
            ("flash,iops=0,read=1MB/s,write=1MB/s", "no number of operations"),
            ("flash,iops=10,read=0MB/s,write=1MB/s", "above 0"),
            ("flash,iops=10,read=9KB/s,write=1MB/s", "too slow"),
            ("flash,iops=10,read=5 furlongs,write=1MB/s", "is not a rate"),
            ("flash,iops=10,speed=1MB/s", "no key"),
            ("flash,iops", "not KEY=VALUE"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains(part) && !error.contains('\n'), "{text}: {error}");
        }
    }
}
