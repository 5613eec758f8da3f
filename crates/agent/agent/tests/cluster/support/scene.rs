//! Client libraries' programs as processes of one pod.

use std::net::UdpSocket;
use std::process::Command;

use super::World;
use super::client_library::{ClientLibrary, LibraryRun, ProgramLocation, ResolverFiles, start_all};
use super::network::Sandbox;

/// What runs in a pod's network.
pub(crate) struct Scene {
    pub(crate) runs: Vec<LibraryRun>,
    /// A name server in there that never says a word, where there is no other.
    _silence: Option<UdpSocket>,
}

impl Scene {
    /// Starts a program for each of these, with these variables in its environment.
    pub(crate) fn start(
        world: &World,
        sandbox: &Sandbox,
        libraries: &[ClientLibrary],
        variables: &[(&str, &str)],
        steps: impl Fn(&ClientLibrary) -> Vec<String>,
    ) -> Self {
        let silence = sandbox.run(|| UdpSocket::bind("127.0.0.1:53")).unwrap();
        let enter = |program: &str| -> Command { sandbox.command(program) };
        let names = ResolverFiles::new(world.folder.path());
        let runs = start_all(libraries, &names, ProgramLocation::Network(&enter, variables), steps);
        Self { runs, _silence: Some(silence) }
    }

    /// Starts a program for each of these, which ask the cluster's name server.
    pub(crate) fn with_name_server(
        sandbox: &Sandbox,
        libraries: &[ClientLibrary],
        names: &ResolverFiles,
        steps: impl Fn(&ClientLibrary) -> Vec<String>,
    ) -> Self {
        let enter = |program: &str| -> Command { sandbox.command(program) };
        let runs = start_all(libraries, names, ProgramLocation::Network(&enter, &[]), steps);
        Self { runs, _silence: None }
    }

    /// Reads all of them to their ends.
    pub(crate) fn finish(&mut self) {
        self.runs.iter_mut().for_each(LibraryRun::wait_for_success);
        // How often each had to ask, and how long it took.
        self.runs.iter().for_each(|run| eprintln!("{}", run.summary()));
    }
}
