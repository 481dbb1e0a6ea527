//! `braid volume create|ls|set|rm`.

use std::collections::BTreeSet;
use std::path::Path;

use braid_client::{Client, Name};
use braid_layout::scheme::UNIT_BYTES_DEFAULT;
use braid_layout::{SchemeError, Shape};
use braid_wire::capability::Protection;
use braid_wire::control::{DriveState, Methods, VolumeRow};
use serde::Serialize;

use crate::files::snapshots_below::{self, InTheWay};
use crate::files::stat::{ShapeFacts, shape_facts, show_shape};
use crate::operate::layout;
use crate::output::exit::{Cause, Doing, Exit, Failure};
use crate::output::report::{Report, count, table};
use crate::output::size;
use crate::{args, connect};

/// Maximum width of a volume if the user gives none: fewer drives make it narrower.
const WIDTH_DEFAULT: usize = 5;
/// A width that is valid for every scheme that takes a width.
const WIDTH_POSSIBLE: u8 = 3;

/// A volume in `--json`.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    shape: ShapeFacts,
    /// Maximum bytes of the volume's files; 0 means no limit.
    quota_bytes: u64,
    files: u64,
    file_bytes: u64,
    /// The protection of data on its way: `integrity` or `privacy`.
    data: &'static str,
    /// The methods that drives run on its files: `none`, `builtin` or `wasm`.
    methods: &'static str,
    /// Name of the key of an encrypted volume.
    key: Option<String>,
}

impl From<args::MethodsMode> for Methods {
    fn from(mode: args::MethodsMode) -> Methods {
        match mode {
            args::MethodsMode::None => Methods::None,
            args::MethodsMode::Builtin => Methods::Builtin,
            args::MethodsMode::Wasm => Methods::Wasm,
        }
    }
}

impl From<args::DataMode> for Protection {
    fn from(mode: args::DataMode) -> Protection {
        match mode {
            args::DataMode::Integrity => Protection::Integrity,
            args::DataMode::Privacy => Protection::Privacy,
        }
    }
}

/// A volume whose data key was wrapped anew, in `--json`.
#[derive(Debug, Serialize)]
struct Rekeyed {
    name: String,
    key_before: String,
    key: String,
}

/// A volume that was removed, in `--json`.
#[derive(Debug, Serialize)]
struct Removed {
    name: String,
}

/// Runs the command.
pub(crate) async fn run(
    command: args::Volume,
    cluster: Option<&Path>,
    report: Report,
) -> Result<(), Failure> {
    match command {
        args::Volume::Create(create) => self::create(create, cluster, report).await,
        args::Volume::Set(set) => self::set(set, cluster, report).await,
        args::Volume::Rekey(rekey) => self::rekey(rekey, cluster, report).await,
        args::Volume::Ls => list(&connect::cluster(cluster).await?, report).await,
        args::Volume::Rm { name, snapshots } => {
            let client = connect::cluster(cluster).await?;
            let then = if snapshots { InTheWay::Remove } else { InTheWay::Refuse };
            snapshots_below::of_volume(&client, &name, then).await?;
            snapshots_below::remove_volume(&client, &name).await?;
            if report.json { report.facts(&Removed { name }, |_| String::new()) } else { Ok(()) }
        }
    }
}

async fn create(create: args::VolumeCreate, cluster: Option<&Path>, report: Report) -> Result<(), Failure> {
    let what = || format!("create volume {}", create.name);
    let asked = Asked::new(&create.scheme, create.width, create.unit).doing(what)?;
    let client = connect::cluster(cluster).await?;
    let shape = asked.shape(&client, what).await?;
    let protection = Protection::from(create.data);
    match args::key_source(create.key.key_file, create.key.key_command) {
        Some(source) if create.encrypt => {
            client
                .volume_create_encrypted(&create.name, Some(shape), create.quota, protection, &source)
                .await?;
        }
        _ => client.volume_create_with(&create.name, Some(shape), create.quota, protection).await?,
    }
    let private = if create.data == args::DataMode::Privacy { ", private data" } else { "" };
    let mut text = format!("volume {}: {shape}, unit {}{private}\n", create.name, size::show(create.unit));
    let facts = facts_of(&client, &create.name).await?;
    if let Some(key) = facts.as_ref().and_then(|row| row.key.as_ref()) {
        text.push_str(&format!(
            "encrypted, by key {key}: keep copies of it, as without it the data is lost\n"
        ));
    }
    let status = connect::status_soon(&client).await?;
    let up = status.drives.iter().filter(|row| row.state == DriveState::Up);
    let hosts: BTreeSet<&str> = up.map(|row| row.host.as_str()).collect();
    text.push_str(&lost_with_a_host(shape, hosts.len()).unwrap_or_default());
    report.facts(&facts, |_| text)
}

/// A line on files that would be lost with a host, if there are several hosts and that is so.
fn lost_with_a_host(shape: Shape, hosts: usize) -> Option<String> {
    let on_one = usize::from(shape.width()).div_ceil(hosts.max(1));
    if hosts < 2 || shape.m() == 0 || on_one <= usize::from(shape.m()) {
        return None;
    }
    Some(format!(
        "a file survives the loss of {}, and of {hosts} hosts one has {on_one} of its columns: it does not survive \
         that of a host\n",
        count(shape.m().into(), "drive")
    ))
}

/// Has an encrypted volume's data key wrapped by another key.
async fn rekey(asked: args::VolumeRekey, cluster: Option<&Path>, report: Report) -> Result<(), Failure> {
    let args::VolumeRekey { name, key_file, key_command, new_key_file, new_key_command } = asked;
    let old = args::key_source(key_file, key_command);
    let new = args::key_source(new_key_file, new_key_command);
    let Some((old, new)) = old.zip(new) else {
        let why = "give --key-file or --key-command, and --new-key-file or --new-key-command";
        return Err(Failure::usage(format!("rekey volume {name}"), why));
    };
    let client = connect::cluster(cluster).await?;
    let (key_before, key) = client.volume_rekey(&name, &old, &new).await?;
    report.facts(&Rekeyed { name, key_before, key }, |done| {
        format!(
            "volume {}: its data key is wrapped by {}, and was by {}\n",
            done.name, done.key, done.key_before
        )
    })
}

/// Changes the layout of a volume's new files.
async fn set(asked: args::VolumeSet, cluster: Option<&Path>, report: Report) -> Result<(), Failure> {
    let what = || format!("set volume {}", asked.name);
    if let Some(scheme) = &asked.scheme {
        Asked::new(scheme, asked.width, asked.unit.unwrap_or(UNIT_BYTES_DEFAULT.into())).doing(what)?;
    }
    let client = connect::cluster(cluster).await?;
    let root = Name::root(&asked.name).map_err(|error| Failure::usage(what(), error.to_string()))?;
    if let Some(data) = asked.data {
        client.volume_protect(&asked.name, data.into()).await?;
    }
    if let Some(methods) = asked.methods {
        client.volume_set_methods(&asked.name, methods.into()).await?;
    }
    if asked.scheme.is_none() && asked.width.is_none() && asked.unit.is_none() {
        let row = facts_of(&client, &asked.name).await?;
        return report.facts(&row, |row| {
            let data = row.as_ref().map_or("", |row| row.data);
            let methods = row.as_ref().map_or("", |row| row.methods);
            format!(
                "volume {}: data has {data}, drives run {methods} methods; what is open follows within two \
                 minutes\n",
                asked.name
            )
        });
    }
    let present = client.layout(&root).await?.shape.shape().doing(what)?;
    let unit = asked.unit.unwrap_or(present.unit_bytes().into());
    let scheme = match (&asked.scheme, asked.width) {
        (Some(scheme), _) => scheme.clone(),
        (None, Some(_)) => present.scheme().to_string(),
        (None, None) => present.to_string(),
    };
    let shape = Asked::new(&scheme, asked.width, unit).doing(what)?.shape(&client, what).await?;
    client.set_layout(&root, Some(shape)).await?;
    let facts = facts_of(&client, &asked.name).await?;
    report.facts(&facts, |_| {
        let again = format!("; braid relayout braid://{} {}", asked.name, layout::flags(shape));
        let unit = size::show(shape.unit_bytes().into());
        format!("volume {}: {shape}, unit {unit}, for new files\n{}", asked.name, layout::stays(&again))
    })
}

/// A shape as it is asked for on the command line.
pub(crate) struct Asked<'a> {
    scheme: &'a str,
    unit: u32,
    /// The shape, if it does not depend on the number of drives; `None` if that decides the width.
    fixed: Option<Shape>,
}

impl Asked<'_> {
    /// Reads the arguments. An invalid scheme is refused before the cluster is contacted.
    pub(crate) fn new(scheme: &str, width: Option<u16>, unit: u64) -> Result<Asked<'_>, Cause> {
        let unit = u32::try_from(unit).map_err(|_| SchemeError::Unit(unit))?;
        let width = width.map(|width| u8::try_from(width).unwrap_or(u8::MAX));
        let fixed = match width {
            Some(width) => Some(Shape::parse(scheme, Some(width), unit)?),
            None => without_width(scheme, unit)?,
        };
        Ok(Asked { scheme, unit, fixed })
    }

    /// Chooses the shape. A width that was not asked for is computed from all drives, so that it does not
    /// depend on which of them happen to be away. Refused if fewer drives are up.
    pub(crate) async fn shape(&self, client: &Client, what: impl Fn() -> String) -> Result<Shape, Failure> {
        let (drives, away) = drives_known(client).await?;
        let up = drives - away.len();
        let shape = match self.fixed {
            Some(shape) => shape,
            None => {
                let width = u8::try_from(drives.min(WIDTH_DEFAULT)).unwrap_or(u8::MAX);
                // With too few drives for any width, the error below names the smallest.
                let shape = Shape::parse(self.scheme, Some(width), self.unit);
                shape.or_else(|_| Shape::parse(self.scheme, Some(WIDTH_POSSIBLE), self.unit)).doing(&what)?
            }
        };
        if usize::from(shape.width()) <= up {
            return Ok(shape);
        }
        let why = format!("{shape} needs {} drives and {up} are up", shape.width());
        let start = match away.is_empty() {
            true => String::new(),
            false => format!("start {}, ", away.join(", ")),
        };
        // rs(k,m) sets the width by its own numbers.
        let narrower = match without_width(self.scheme, self.unit) {
            Ok(None) => "choose a smaller --width",
            _ => "choose a scheme with fewer columns",
        };
        let remedy = format!("{start}{narrower} or add drives");
        Err(Failure::new(Exit::DrivesAway, what(), why).remedy(remedy))
    }
}

/// Returns the shape if the scheme alone fixes its width; `None` if the number of drives decides.
fn without_width(scheme: &str, unit: u32) -> Result<Option<Shape>, Cause> {
    match Shape::parse(scheme, None, unit) {
        Ok(shape) => Ok(Some(shape)),
        Err(SchemeError::NoWidth(named)) => match named.width_default() {
            Some(width) => Ok(Some(Shape::parse(scheme, Some(width), unit)?)),
            None => {
                // Reports other errors in the scheme or unit.
                Shape::parse(scheme, Some(WIDTH_POSSIBLE), unit)?;
                Ok(None)
            }
        },
        Err(error) => Err(error.into()),
    }
}

/// Creates the volume that every new local cluster gets: with parity if there are enough drives.
pub(crate) async fn create_default(client: &Client, name: &str, drives: usize) -> Result<(), Failure> {
    Ok(client.volume_create(name, Shape::default_on(drives.max(1)), 0).await?)
}

/// Number of drives that may take columns of new layouts once they are up, and the names of those that are
/// away.
async fn drives_known(client: &Client) -> Result<(usize, Vec<String>), Failure> {
    let status = client.status().await?;
    let known = status.drives.iter().filter(|row| row.state != DriveState::Replaced && !row.draining);
    let away = known.clone().filter(|row| row.state == DriveState::Away).map(|row| row.name.clone());
    Ok((known.count(), away.collect()))
}

async fn facts_of(client: &Client, volume: &str) -> Result<Option<Row>, Failure> {
    let list = client.volume_list().await?;
    let row = list.volumes.iter().find(|row| row.name == volume);
    Ok(row.map(|row| facts(row, list.methods_of(row.volume))))
}

fn facts(row: &VolumeRow, methods: Methods) -> Row {
    Row {
        name: row.name.clone(),
        shape: shape_facts(&row.shape),
        quota_bytes: row.quota_bytes,
        files: row.files,
        file_bytes: row.file_bytes,
        data: match row.protection {
            Protection::Privacy => "privacy",
            Protection::Integrity | Protection::IntegrityData => "integrity",
        },
        methods: match methods {
            Methods::None => "none",
            Methods::Builtin => "builtin",
            Methods::Wasm => "wasm",
        },
        key: row.key.as_ref().map(|key| key.id.clone()),
    }
}

async fn list(client: &Client, report: Report) -> Result<(), Failure> {
    let list = client.volume_list().await?;
    let rows: Vec<Row> = list.volumes.iter().map(|row| facts(row, list.methods_of(row.volume))).collect();
    report.facts(&rows, |rows| {
        let cells = rows.iter().map(|row| {
            let quota = if row.quota_bytes == 0 { "none".to_owned() } else { size::show(row.quota_bytes) };
            vec![
                row.name.clone(),
                show_shape(&row.shape),
                row.files.to_string(),
                size::show(row.file_bytes),
                quota,
                row.data.to_owned(),
                row.methods.to_owned(),
                row.key.clone().unwrap_or_else(|| "none".to_owned()),
            ]
        });
        table(&["volume", "shape", "files", "bytes", "quota", "data", "methods", "key"], &[2, 3, 4], cells)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scheme_that_does_not_survive_a_host_is_told() {
        let line = |scheme: &str, width, hosts| {
            lost_with_a_host(Shape::parse(scheme, width, 4096).expect("a shape"), hosts)
        };
        assert!(
            line("raid5", Some(4), 3)
                .is_some_and(|line| line.contains("loss of 1 drive, and of 3 hosts one has 2"))
        );
        for (scheme, width, hosts) in
            [("raid5", Some(3), 3), ("rs(4,2)", None, 3), ("raid5", Some(5), 1), ("raid0", Some(4), 2)]
        {
            assert_eq!(line(scheme, width, hosts), None, "{scheme} on {hosts} hosts");
        }
    }

    #[test]
    fn the_scheme_is_judged_without_a_cluster() {
        assert!(matches!(without_width("rs(4,2)", 4096), Ok(Some(shape)) if shape.width() == 6));
        assert!(matches!(without_width("raid1", 4096), Ok(Some(shape)) if shape.width() == 2));
        assert!(matches!(without_width("raid5", 4096), Ok(None)));
        for (scheme, unit) in
            [("raid6", 4096), ("raid5", 4095), ("raid5", 2048), ("rs", 4096), ("rs(4,5)", 4096)]
        {
            assert!(without_width(scheme, unit).is_err(), "{scheme} {unit}");
        }
    }
}
