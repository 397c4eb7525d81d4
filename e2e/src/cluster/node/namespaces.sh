# Runs in new network and mount namespaces, as root. Connects them with the host, creates the
# cgroups of the node, and runs the inner part of this script in new PID and cgroup namespaces. When
# the process of the inner part ends, all namespaces and programs end. The janitor removes the
# cgroups.
set -e
root=$1 interface=$2 host=$3 node=$4 pods=$5 group=$6 harness=$7

# When this namespace ends, the kernel removes the host's end of the link with its address and route.
ip link set lo up
ip link add uplink type veth peer name "$interface" netns "$harness"
ip address add "$node/30" dev uplink
ip link set uplink up
ip route add default via "$host"
on_host() { nsenter --target "$harness" --net -- "$@"; }
on_host ip address add "$host/30" dev "$interface"
on_host ip link set "$interface" up
on_host ip route add "$pods" via "$node"

if [ -f /sys/fs/cgroup/cgroup.controllers ]; then version=2; else version=1; fi
if [ $version = 2 ]; then hierarchies=/sys/fs/cgroup; else hierarchies=/sys/fs/cgroup/*; fi
for hierarchy in $hierarchies; do
  if [ -L "$hierarchy" ] || ! [ -f "$hierarchy/cgroup.procs" ]; then continue; fi
  mkdir "$hierarchy/$group"
  for file in cpuset.cpus cpuset.mems; do
    # In cgroup version 1, a new cgroup has no CPUs and no memory nodes, so no process can join it.
    # Therefore it gets the values of its parent.
    [ ! -f "$hierarchy/$file" ] || cat "$hierarchy/$file" > "$hierarchy/$group/$file"
  done
  echo 0 > "$hierarchy/$group/cgroup.procs"
done

exec unshare --cgroup --pid --fork --kill-child --mount-proc sh -e -c '
root=$1 group=$2 version=$3

# Inside of the namespaces, only the cgroups of the node exist.
own=$root/node/cgroup
mkdir "$own"
if [ $version = 2 ]; then
  mount --bind "/sys/fs/cgroup/$group" "$own"
else
  mount -t tmpfs tmpfs "$own"
  for hierarchy in /sys/fs/cgroup/*; do
    name=${hierarchy##*/}
    if [ -L "$hierarchy" ]; then
      ln -s "$(readlink "$hierarchy")" "$own/$name"
    elif [ -f "$hierarchy/cgroup.procs" ]; then
      mkdir "$own/$name"
      mount --bind "$hierarchy/$group" "$own/$name"
    fi
  done
fi
umount --recursive /sys/fs/cgroup
mount --rbind "$own" /sys/fs/cgroup
umount --recursive "$own"
if [ $version = 2 ]; then
  # A cgroup that has controllers for its children must not contain processes.
  mkdir /sys/fs/cgroup/programs
  echo 0 > /sys/fs/cgroup/programs/cgroup.procs
  sed "s/^/+/; s/ / +/g" /sys/fs/cgroup/cgroup.controllers > /sys/fs/cgroup/cgroup.subtree_control
fi

# Programs of a node write to fixed paths, so each node has its own folders at these paths.
mount -t tmpfs tmpfs /run
for folder in /var/lib /var/log; do
  mkdir -p "$root/node$folder"
  mount --bind "$root/node$folder" "$folder"
done

# The kubelet sets kernel parameters, which are shared by all processes of the machine. Therefore the
# kubelet gets copies of the files that already contain the expected values.
mkdir "$root/node/sysctl"
pretend() {
  copy=$root/node/sysctl/$(echo "$1" | tr / -)
  echo "$2" > "$copy"
  [ ! -e "/proc/sys/$1" ] || mount --bind "$copy" "/proc/sys/$1"
}
pretend vm/overcommit_memory 1
pretend vm/panic_on_oom 0
pretend kernel/panic 10
pretend kernel/panic_on_oops 1
pretend kernel/keys/root_maxkeys 1000000
pretend kernel/keys/root_maxbytes 25000000

: > "$root/node/up"
# Processes whose parent has ended become children of this process, which waits for their end.
while :; do sleep 3600 & wait $! || :; done
' node "$root" "$group" $version
