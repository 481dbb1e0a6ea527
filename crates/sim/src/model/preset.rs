//! Parts by name, so that a spec, a sizing and a test can say `fujitsu-m2372k`.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};

use super::{DiskModel, Distribution, LinkModel, Medium, ProcessorModel};
use crate::units::{Bytes, Rate, Span};

/// A kind of part that has models by name.
pub trait Preset: Sized {
    /// Word for the kind of part, for messages.
    const WHAT: &'static str;
    /// The names, each with a description.
    const NAMES: &'static [(&'static str, &'static str)];

    /// The model with this name; `None` if there is none.
    fn preset(name: &str) -> Option<Self>;
}

/// The names of a kind of part, separated by commas.
pub fn names<T: Preset>() -> String {
    T::NAMES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

/// Takes a part either by name or as a table.
pub(crate) fn named<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Preset + serde::Deserialize<'de>,
{
    struct Either<T>(PhantomData<T>);

    impl<'de, T: Preset + serde::Deserialize<'de>> Visitor<'de> for Either<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a table, or the name of a {}: {}", T::WHAT, names::<T>())
        }

        fn visit_str<E: Error>(self, name: &str) -> Result<T, E> {
            T::preset(name).ok_or_else(|| {
                E::custom(format!("no {} has the name \"{name}\": use {}, or a table", T::WHAT, names::<T>()))
            })
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
            T::deserialize(MapAccessDeserializer::new(map))
        }
    }

    deserializer.deserialize_any(Either(PhantomData))
}

/// A megabyte of the papers' disk rates: 1000 KB of 1024 bytes. Only then do 32 KB at 2.5 MB/s take 12.8
/// ms, and with seek and rotation the "about 37" of Swift's section 5.2.
const PAPER_MB: f64 = 1_024_000.0;

impl Preset for DiskModel {
    const WHAT: &'static str = "disk";
    const NAMES: &'static [(&'static str, &'static str)] = &[
        ("free", "takes no time"),
        ("fujitsu-m2372k", "Swift's figures 3, 5 and 6: seek 16 ms, rotation 8.3 ms, 2.5 MB/s"),
        ("swift-slow", "Swift's figure 4: the same with 1.5 MB/s"),
        ("hdd-18tb", "a disk of 18 TB, 7200 rpm: seek 8.5 ms, rotation 4.17 ms, 260 MB/s"),
        ("nvme-2026", "a flash disk, PCIe 4: read 70 us and 7 GB/s, write 15 us and 5 GB/s, 128 at a time"),
    ];

    fn preset(name: &str) -> Option<DiskModel> {
        let ms = Span::milliseconds;
        let disk = |seek: f64, rotation: f64, rate: f64| DiskModel {
            seek: Distribution::uniform_around(ms(seek)),
            rotation: Distribution::uniform_around(ms(rotation)),
            write_seek: None,
            read_rate: Rate(rate),
            write_rate: Rate(rate),
            lanes: 1,
            queue: None,
            retry: ms(1.0),
        };
        Some(match name {
            "free" => {
                DiskModel { seek: Distribution::ZERO, rotation: Distribution::ZERO, ..disk(0.0, 0.0, 1e18) }
            }
            "fujitsu-m2372k" => disk(16.0, 8.3, 2.5 * PAPER_MB),
            "swift-slow" => disk(16.0, 8.3, 1.5 * PAPER_MB),
            "hdd-18tb" => disk(8.5, 4.17, 260e6),
            "nvme-2026" => DiskModel {
                seek: Distribution::Exponential(ms(0.07)),
                rotation: Distribution::ZERO,
                write_seek: Some(Distribution::Exponential(ms(0.015))),
                write_rate: Rate(5e9),
                lanes: 128,
                ..disk(0.0, 0.0, 7e9)
            },
            _ => return None,
        })
    }
}

impl Preset for LinkModel {
    const WHAT: &'static str = "link";
    const NAMES: &'static [(&'static str, &'static str)] = &[
        ("free", "takes no time"),
        ("swift-ring", "Swift's token ring of 1 Gb/s"),
        ("1GbE", "a switch, 1 Gbit/s a port, frames of 1448 bytes of TCP in 1538 on the wire"),
        ("10GbE", "the same at 10 Gbit/s"),
        ("25GbE", "25 Gbit/s, frames of 8948 bytes in 9038"),
        ("100GbE", "100 Gbit/s, frames of 8948 bytes in 9038"),
        ("200GbE", "200 Gbit/s, frames of 8948 bytes in 9038"),
    ];

    fn preset(name: &str) -> Option<LinkModel> {
        let switch = |gigabits: f64, payload: u64, latency: u64| LinkModel {
            medium: Medium::Switch,
            rate: Rate(gigabits * 1e9 / 8.0),
            client_rate: None,
            bucket: None,
            latency: Span(latency),
            payload: Bytes(payload),
            overhead: Bytes(90),
            burst: Bytes(64 << 10),
            queue: None,
            resend: Span::milliseconds(10.0),
        };
        Some(match name {
            "free" => LinkModel { overhead: Bytes(0), ..switch(8e9, 1448, 0) },
            // A message is one packet. Waiting for the token takes half a walk around the ring.
            "swift-ring" => LinkModel {
                medium: Medium::Shared,
                payload: Bytes(64 << 20),
                overhead: Bytes(0),
                burst: Bytes(64 << 20),
                ..switch(1.0, 1448, 10_000)
            },
            "1GbE" => switch(1.0, 1448, 30_000),
            "10GbE" => switch(10.0, 1448, 15_000),
            "25GbE" => switch(25.0, 8948, 10_000),
            "100GbE" => switch(100.0, 8948, 5_000),
            "200GbE" => switch(200.0, 8948, 5_000),
            _ => return None,
        })
    }
}

impl Preset for ProcessorModel {
    const WHAT: &'static str = "processor";
    const NAMES: &'static [(&'static str, &'static str)] = &[
        ("free", "takes no time"),
        ("swift-1991", "Swift's hosts: 100 MIPS, 1500 instructions for a packet and 1 for each byte"),
        ("server-2026", "16 cores of 6000 MIPS, offload of 64 KiB, parity at 20 GB/s, checksums at 20 GB/s"),
    ];

    fn preset(name: &str) -> Option<ProcessorModel> {
        let free = ProcessorModel {
            mips: 1e15,
            cores: 1,
            per_message: 0.0,
            per_packet: 0.0,
            per_byte: 0.0,
            packet: Bytes(64 << 10),
            parity: None,
            checksum: None,
        };
        Some(match name {
            "free" => free,
            "swift-1991" => ProcessorModel {
                mips: 100.0,
                per_packet: 1500.0,
                per_byte: 1.0,
                packet: Bytes(64 << 20),
                ..free
            },
            "server-2026" => ProcessorModel {
                mips: 6000.0,
                cores: 16,
                per_message: 10_000.0,
                per_packet: 3000.0,
                per_byte: 0.3,
                parity: Some(Rate(20e9)),
                checksum: Some(Rate(20e9)),
                ..free
            },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all<T: Preset>() {
        for (name, _) in T::NAMES {
            assert!(T::preset(name).is_some(), "{} {name}", T::WHAT);
        }
        assert!(T::preset("none-such").is_none());
    }

    #[test]
    fn every_name_has_its_model() {
        all::<DiskModel>();
        all::<LinkModel>();
        all::<ProcessorModel>();
    }

    #[test]
    fn a_transfer_of_32_kb_takes_swifts_disk_37_ms() {
        let disk = DiskModel::preset("fujitsu-m2372k").expect("it is listed");
        assert!((disk.access_ms(false, 32 << 10) - 37.1).abs() < 1e-9, "{}", disk.access_ms(false, 32 << 10));
        let slow = DiskModel::preset("swift-slow").expect("it is listed");
        assert!((slow.access_ms(false, 4 << 10) - 26.966_667).abs() < 1e-5);
    }
}
