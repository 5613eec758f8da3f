//! Connection records of no connection, which fill the map.

use aya::maps::{HashMap, Map, MapData};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::Lab;

/// A byte of these records' addresses.
const MARK: u8 = 0xee;

type Records = HashMap<MapData, [u8; 48], [u8; 24]>;

fn records(lab: &Lab) -> Records {
    let map = MapData::from_pin(lab.pins.directory().join("callers")).unwrap();
    HashMap::try_from(Map::LruHashMap(map)).unwrap()
}

/// Stores more records than the map holds, from each processor: the newest entries of one are out of the others' reach.
pub(crate) fn fill_with_records(lab: &Lab) {
    let mut map = records(lab);
    let home = sched_getaffinity(None).unwrap();
    for cpu in (0..CpuSet::MAX_CPU).filter(|cpu| home.is_set(*cpu)) {
        let mut alone = CpuSet::new();
        alone.set(cpu);
        sched_setaffinity(None, &alone).unwrap();
        for other in 0..40_000_u64 {
            let mut key = [MARK; 48];
            key[..8].copy_from_slice(&other.to_ne_bytes());
            key[40..].copy_from_slice(&cpu.to_ne_bytes());
            map.insert(key, [0; 24], 0).unwrap();
        }
    }
    sched_setaffinity(None, &home).unwrap();
}

/// Deletes the records with which [`fill_with_records`] filled the map.
pub(crate) fn delete_filling(lab: &Lab) {
    let mut map = records(lab);
    let filling: Vec<_> = map.keys().map(Result::unwrap).filter(|key| key[8..40] == [MARK; 32]).collect();
    for key in filling {
        map.remove(&key).unwrap();
    }
}
