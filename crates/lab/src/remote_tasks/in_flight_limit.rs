//! The number of requests that a generator can have in flight within its memory limit.

use seawall_cgroup::parse_memory_limit;
use seawall_probe::file_reader::HostFiles;

/// The files with the memory limit of a container's own group, in cgroup versions 2 and 1.
const LIMITS: [&str; 2] = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];

/// The memory of the program without requests, including histograms of all classes and threads.
const BASE: u64 = 24 << 20;

/// The memory of one request in flight: the buffers of a connection in this process and in the kernel, which counts them for the
/// group.
const EACH: u64 = 24 << 10;

/// Returns the most requests in flight for which there is memory; none without a memory limit.
#[must_use]
pub fn max_in_flight_for_memory(files: &impl HostFiles) -> Option<usize> {
    let limit = LIMITS.iter().find_map(|path| parse_memory_limit(&files.read(path).ok()?).flatten())?;
    usize::try_from((limit.saturating_sub(BASE) / EACH).max(1)).ok()
}

#[cfg(test)]
mod tests {
    use seawall_probe::file_reader::fake::Texts;

    use super::*;

    #[test]
    fn what_fits_into_a_pods_memory_may_be_in_flight_and_one_always() {
        let most = |path: &str, text: &str| max_in_flight_for_memory(&Texts::new(&[(path, text)]));
        assert_eq!(most(LIMITS[0], "134217728\n"), Some(4437), "128 MiB");
        assert_eq!(most(LIMITS[1], "67108864\n"), Some(1706), "64 MiB");
        assert_eq!(most(LIMITS[0], "1048576\n"), Some(1));
        assert_eq!((most(LIMITS[0], "max\n"), most("/other", "1")), (None, None));
        assert_eq!(most(LIMITS[1], "9223372036854771712\n"), None);
    }
}
