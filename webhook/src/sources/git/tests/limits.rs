//! Tests of the limits of time, disk space, folders and processes.

use super::*;

#[tokio::test]
async fn stalled_server_ends_with_a_timeout_and_leaves_nothing() {
    let server = GitServer::start().await;
    server.set(Behavior {
        stalls: true,
        ..Behavior::default()
    });
    let limits = GitLimits {
        network: Duration::from_millis(500),
        ..GitLimits::default()
    };
    let program = program(&server, limits);
    let source = open_with(&server, &program, ("manifests", &branch("main")), None).await;
    let (code, told) = refused(&source).await;
    assert_eq!(code, codes::install::GIT_UNREACHABLE);
    assert!(told.contains("did not end within"), "{told}");
    drop(source);
    processes_end(&server).await;
}

#[tokio::test]
async fn cancelled_fetch_kills_and_reaps_all_processes() {
    let server = GitServer::start().await;
    server.set(Behavior {
        stalls: true,
        ..Behavior::default()
    });
    // This process becomes the parent of processes that git does not wait for, as in a container,
    // where it is PID 1.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).unwrap();
    let source = open(&server, "manifests", &branch("main")).await;
    let running = tokio::spawn(async move { source.resolve().await.map(drop) });
    while server.requests().is_empty() {
        tokio::task::yield_now().await;
    }
    let running_groups = groups(&processes(&server));
    assert!(processes(&server).len() >= 2, "git and its helper");
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    processes_end(&server).await;
    // A process that has ended but was not reaped still belongs to its process group.
    let left = groups(&all_processes());
    assert_eq!(running_groups.intersection(&left).count(), 0);
}

fn all_processes() -> Vec<std::path::PathBuf> {
    let entries = fs_err::read_dir("/proc").unwrap().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// Returns the processes that work in the folder of git.
fn processes(server: &GitServer) -> Vec<std::path::PathBuf> {
    let folder = cache(server);
    let works = |process: &std::path::PathBuf| {
        fs_err::read_link(process.join("cwd")).is_ok_and(|path| path.starts_with(&folder))
    };
    all_processes().into_iter().filter(works).collect()
}

/// Returns the groups of processes.
fn groups(processes: &[std::path::PathBuf]) -> BTreeSet<String> {
    let group = |process: &std::path::PathBuf| {
        let stat = fs_err::read_to_string(process.join("stat")).ok()?;
        let (_, fields) = stat.rsplit_once(") ")?;
        fields.split(' ').nth(2).map(str::to_owned)
    };
    processes.iter().filter_map(group).collect()
}

/// Waits until git has no processes and no folders.
async fn processes_end(server: &GitServer) {
    let folders = || fs_err::read_dir(cache(server)).unwrap().count();
    let ended = async {
        while folders() > 0 || !processes(server).is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), ended)
        .await
        .unwrap();
}

#[tokio::test]
async fn large_revision_is_killed_at_the_disk_limit() {
    let server = GitServer::start().await;
    let mut state = 1_u64;
    let noise = (0..1 << 18).map(|_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        format!("{:016x}", state >> 3)
    });
    server.publish(&[("manifests/large", &noise.collect::<String>())]);
    let limits = GitLimits {
        folder: 1 << 20,
        ..GitLimits::default()
    };
    let program = program(&server, limits);
    let source = open_with(&server, &program, ("manifests", &branch("main")), None).await;
    let (code, told) = refused(&source).await;
    assert_eq!(code, codes::install::GIT_CONTENT);
    assert!(told.contains("more than 1 MiB on disk"), "{told}");
}

#[tokio::test]
async fn one_requester_uses_half_of_the_folders() {
    let server = GitServer::start().await;
    let program = program(&server, GitLimits::default());
    let main = branch("main");
    let held = open_with(&server, &program, ("manifests", &main), None).await;
    let waiting = open_with(&server, &program, ("manifests", &main), None);
    let waited = tokio::time::timeout(Duration::from_millis(100), waiting).await;
    assert!(waited.is_err());
    let remote = GitRemote {
        url: GitUrl::parse(&server.url()).unwrap(),
        addresses: vec![server.address().ip()],
        credentials: None,
        verification: ServerVerification::Required,
    };
    program.repository("bob", remote).await.unwrap();
    drop(held);
    open_with(&server, &program, ("manifests", &main), None).await;
}

#[tokio::test]
async fn stalled_server_of_one_requester_does_not_delay_another() {
    let server = GitServer::start().await;
    let program = program(&server, GitLimits::default());
    server.set(Behavior {
        stalls: true,
        ..Behavior::default()
    });
    let source = open_with(&server, &program, ("manifests", &branch("main")), None).await;
    let stalled = tokio::spawn(async move { source.resolve().await.map(drop) });
    while server.requests().is_empty() {
        tokio::task::yield_now().await;
    }
    server.set(Behavior::default());
    let checkout = ("manifests", &branch("main"));
    let other = open_for("bob", &server, &program, checkout, None).await;
    assert!(fetched(&other).await.is_ok());
    assert!(!stalled.is_finished());
    stalled.abort();
}

#[tokio::test]
async fn wait_for_a_folder_ends_with_an_error_that_is_retried() {
    let server = GitServer::start().await;
    let limits = GitLimits {
        wait: Duration::from_millis(100),
        ..GitLimits::default()
    };
    let program = program(&server, limits);
    let main = branch("main");
    let held = open_with(&server, &program, ("manifests", &main), None).await;
    let repository = GitUrl::parse(&server.url()).unwrap();
    let remote = GitRemote {
        url: repository.clone(),
        addresses: vec![server.address().ip()],
        credentials: None,
        verification: ServerVerification::Required,
    };
    let error = program.repository("ana", remote).await.unwrap_err();
    let finding = failed("cannot prepare", &repository, error).finding();
    assert_eq!(finding.code, codes::install::MEMORY_BUSY);
    assert!(finding.message.ends_with("use all working folders of git"));
    // Before a transfer, the wait has no time limit.
    let reserved = program.reserve_folder("ana");
    let waited = tokio::time::timeout(Duration::from_millis(300), reserved).await;
    assert!(waited.is_err());
    drop(held);
    assert!(program.reserve_folder("ana").await.is_ok());
}

#[tokio::test]
async fn all_commands_of_a_content_have_one_time_limit() {
    let server = GitServer::start().await;
    server.set(Behavior {
        stalls: true,
        ..Behavior::default()
    });
    let limits = GitLimits {
        content: Duration::from_millis(500),
        ..GitLimits::default()
    };
    let program = program(&server, limits);
    let source = open_with(&server, &program, ("manifests", &branch("main")), None).await;
    let (code, told) = refused(&source).await;
    assert_eq!(code, codes::install::GIT_UNREACHABLE);
    assert!(told.contains("git cannot read https://"), "{told}");
}

#[tokio::test]
async fn stalled_name_lookups_end_at_the_time_limit_of_a_content() {
    let server = GitServer::start().await;
    let limits = GitLimits {
        content: Duration::from_millis(500),
        ..GitLimits::default()
    };
    let program = program(&server, limits);
    let mut source = open_with(&server, &program, ("manifests", &branch("main")), None).await;
    let (closed, gate) = std::sync::mpsc::channel::<()>();
    let gate = std::sync::Mutex::new(gate);
    source.folder = OnceCell::new();
    source.access.resolver = LimitedResolver::new(move |_| {
        gate.lock().unwrap().recv().ok();
        Ok(Vec::new())
    });
    let prepared = tokio::time::timeout(Duration::from_secs(30), source.prepare()).await;
    drop(closed);
    let finding = prepared.unwrap().unwrap_err().finding();
    assert_eq!(finding.code, codes::install::GIT_UNREACHABLE);
}

#[tokio::test]
async fn chart_can_have_more_names_at_its_root_than_a_command_line() {
    let server = GitServer::start().await;
    let names: Vec<_> = (0..1500).map(|number| format!("{number:0200}")).collect();
    let mut chart: Vec<_> = names.iter().map(|name| (name.as_str(), "")).collect();
    chart.push(("Chart.yaml", "name: web\n"));
    server.publish(&chart);
    let source = open(&server, "", &branch("main")).await;
    let (_, found) = fetched(&source).await.unwrap();
    // The first commit contains two further files.
    assert_eq!(found.len(), chart.len() + 2);
}
