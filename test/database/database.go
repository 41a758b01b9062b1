//go:build unix

// Package database runs PostgreSQL and MariaDB for tests, each in a directory of its own, from the
// programs that Debian's packages install.
package database

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver

	"github.com/sailplane-dev/sailplane/test/program"
)

// Password is that of the user sailplane. It has what needs percent-encoding.
const Password = "s3cr3t/p@ss:w#rd?&%"

// ErrNotInstalled is why a database cannot run.
var ErrNotInstalled = errors.New("it is not installed")

// startTimeout is how long a database may take to start on a busy machine.
const startTimeout = 2 * time.Minute

// stopTimeout is how long a server may take to end.
const stopTimeout = time.Minute

// Server is a database server that a test has for itself.
type Server struct {
	// Dir is the directory of the server, and Data the one with what it stores, from the next
	// start on. Socket is the Unix socket where it listens.
	Dir, Data, Socket string
	// Settings are those of the server, from the next start on.
	Settings []string

	kind     kind
	port     int
	reserved *os.File // the port, until nobody has the server
	become   *syscall.SysProcAttr
	path     string // of its program

	running *exec.Cmd
	exited  chan struct{}
	output  output
}

// kind is what differs between databases.
type kind struct {
	scheme, account string
	query           string         // of URLs
	first           string         // a database that is always there
	socket          string         // the name of the Unix socket, for a port
	end             syscall.Signal // ends connections and then the server
	arguments       func(*Server) []string
	create          func(context.Context, *Server) error
}

// output is what a server says.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

// String is what it has said.
func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// Address is where the server listens.
func (s *Server) Address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// URL is that of a database on the server, which need not be there.
func (s *Server) URL(name string) string { return s.Through(s.Address(), name) }

// Through is the URL of a database, by way of another address.
func (s *Server) Through(address, name string) string {
	u := url.URL{Scheme: s.kind.scheme, User: url.UserPassword("sailplane", Password), Host: address, Path: "/" + name, RawQuery: s.kind.query}
	return u.String()
}

// Pid is the process of the server while it runs.
func (s *Server) Pid() int { return s.running.Process.Pid }

// Output is what the server has said.
func (s *Server) Output() string { return s.output.String() }

// Command is what runs the server.
func (s *Server) Command() *exec.Cmd {
	// A file that may not grow is an error, and does not end the process.
	command := exec.Command("/bin/sh", append([]string{"-c", `trap '' XFSZ; exec "$0" "$@"`, s.path}, s.kind.arguments(s)...)...)
	command.SysProcAttr, command.Dir = s.become, s.Dir
	return command
}

// Start starts the server, again after it was stopped or killed. It does not wait until it answers.
func (s *Server) Start() error {
	command := s.Command()
	command.Stdout, command.Stderr = &s.output, &s.output
	if err := command.Start(); err != nil {
		return fmt.Errorf("start %s: %w", s.path, err)
	}
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		_ = command.Wait() // it says how it was ended
	}()
	s.running, s.exited = command, exited
	return nil
}

// Await waits until the server takes connections.
func (s *Server) Await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	db, err := Connect(s.URL(s.kind.first))
	if err != nil {
		return err
	}
	defer db.Close()
	for {
		err := db.PingContext(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("it takes no connections: %w", err)
		}
	}
}

// With adds a parameter to the query of a URL.
func With(address, parameter string) string {
	if strings.Contains(address, "?") {
		return address + "&" + parameter
	}
	return address + "?" + parameter
}

// Connect opens a database by its URL. It takes several statements at once.
func Connect(address string) (*sql.DB, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	if u.Scheme == "postgres" {
		return sql.Open("pgx", With(address, "default_query_exec_mode=simple_protocol"))
	}
	config := mysql.NewConfig()
	config.User, config.Net, config.Addr, config.DBName = u.User.Username(), "tcp", u.Host, u.Path[1:]
	config.Passwd, _ = u.User.Password()
	config.MultiStatements = true
	return sql.Open("mysql", config.FormatDSN())
}

// Stop ends the server, and waits until it has ended.
func (s *Server) Stop() error { return s.signal(s.kind.end) }

// Kill ends it as a crash does.
func (s *Server) Kill() error { return s.signal(syscall.SIGKILL) }

func (s *Server) signal(signal syscall.Signal) error {
	if s.running == nil {
		return nil
	}
	defer func() { s.running = nil }()
	if err := s.running.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-s.exited:
		return nil
	case <-time.After(stopTimeout):
		_ = s.running.Process.Kill()
		<-s.exited
		return fmt.Errorf("%s does not end in %v:\n%s", s.path, stopTimeout, s.Output())
	}
}

// Copy copies what a server that is stopped stores, and returns where it is.
func (s *Server) Copy() (string, error) {
	to := s.Data + "-copy"
	return to, duplicate(s.Data, to)
}

// new makes a server in a directory.
func (k kind) new(ctx context.Context, dir, path string, settings []string) (*Server, error) {
	s := &Server{Dir: dir, Data: filepath.Join(dir, "data"), Settings: settings, kind: k, path: path}
	var err error
	if s.become, err = account(k.account, dir); err != nil {
		return nil, err
	}
	if s.reserved, s.port, err = reserve(); err != nil {
		return nil, err
	}
	s.Socket = filepath.Join(dir, fmt.Sprintf(k.socket, s.port))
	return s, k.fill(ctx, s)
}

// fill makes what a new server stores. That takes seconds of a processor, so all tests have copies of it.
func (k kind) fill(ctx context.Context, s *Server) error {
	version, err := exec.CommandContext(ctx, s.path, "--version").Output()
	if err != nil {
		return fmt.Errorf("%s --version: %w", s.path, err)
	}
	shared, unlock, err := program.Shared(ctx, fmt.Sprintf("%s-%x-of-%d", k.scheme, sha256.Sum256(version), os.Getuid()))
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := os.Stat(shared); err == nil {
		return duplicate(shared, s.Data)
	}
	if err := k.create(ctx, s); err != nil {
		return err
	}
	fresh := shared + ".new"
	if err := errors.Join(os.RemoveAll(fresh), duplicate(s.Data, fresh)); err != nil {
		return err
	}
	return os.Rename(fresh, shared)
}

// duplicate copies a folder, with the owners of its files.
func duplicate(from, to string) error {
	if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
		return fmt.Errorf("copy %s: %w: %s", from, err, out)
	}
	return nil
}

// NewPostgres makes a PostgreSQL in a directory, which becomes that of another user where root runs
// it, with settings such as "fsync=on": it does not flush the disk unless they say so.
func NewPostgres(ctx context.Context, dir string, settings ...string) (*Server, error) {
	bin, err := postgresPrograms()
	if err != nil {
		return nil, err
	}
	postgres := kind{
		scheme: "postgres", account: "postgres", query: "sslmode=disable", // a refused handshake is another process
		first: "postgres", socket: ".s.PGSQL.%d", end: syscall.SIGINT,
	}
	postgres.arguments = func(s *Server) []string {
		arguments := []string{"-D", s.Data, "-k", dir, "-p", strconv.Itoa(s.port)}
		for _, s := range append([]string{"listen_addresses=127.0.0.1", "max_connections=300", "fsync=off"}, s.Settings...) {
			arguments = append(arguments, "-c", s)
		}
		return arguments
	}
	postgres.create = func(ctx context.Context, s *Server) error {
		secret := filepath.Join(dir, "password")
		if err := os.WriteFile(secret, []byte(Password), 0o644); err != nil {
			return err
		}
		return s.run(ctx, filepath.Join(bin, "initdb"), "--pgdata", s.Data, "--username=sailplane", "--pwfile", secret,
			"--auth=scram-sha-256", "--no-locale", "--encoding=UTF8", "--no-sync")
	}
	return postgres.new(ctx, dir, filepath.Join(bin, "postgres"), settings)
}

// postgresPrograms is the directory of PostgreSQL's programs.
func postgresPrograms() (string, error) {
	if initdb, err := exec.LookPath("initdb"); err == nil {
		initdb, err = filepath.EvalSymlinks(initdb)
		return filepath.Dir(initdb), err
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) == 0 {
		return "", fmt.Errorf("PostgreSQL: %w: the Debian package is postgresql", ErrNotInstalled)
	}
	return filepath.Dir(found[len(found)-1]), nil
}

// NewMariaDB makes a MariaDB in a directory, which becomes that of another user where root runs it,
// with settings such as "--server-id=2". It does not flush the disk unless they say so.
func NewMariaDB(ctx context.Context, dir string, settings ...string) (*Server, error) {
	install, err := exec.LookPath("mariadb-install-db")
	if err != nil {
		return nil, fmt.Errorf("MariaDB: %w: the Debian package is mariadb-server", ErrNotInstalled)
	}
	users, statements := filepath.Join(dir, "users.sql"), ""
	for _, host := range []string{"localhost", "127.0.0.1"} {
		statements += fmt.Sprintf("CREATE USER IF NOT EXISTS sailplane@'%s' IDENTIFIED BY '%s';\n", host, Password) +
			fmt.Sprintf("GRANT ALL ON *.* TO sailplane@'%s' WITH GRANT OPTION;\n", host)
	}
	if err := os.WriteFile(users, []byte(statements), 0o644); err != nil {
		return nil, err
	}
	mariadb := kind{scheme: "mysql", account: "mysql", first: "mysql", socket: "%d.sock", end: syscall.SIGTERM}
	mariadb.arguments = func(s *Server) []string {
		return append([]string{
			"--no-defaults", "--datadir=" + s.Data, "--socket=" + s.Socket, "--bind-address=127.0.0.1", "--port=" + strconv.Itoa(s.port),
			"--skip-name-resolve", "--init-file=" + users, "--max-connections=300", "--innodb-flush-log-at-trx-commit=2",
			"--pid-file=" + filepath.Join(dir, "pid"), "--tmpdir=" + dir,
		}, s.Settings...)
	}
	mariadb.create = func(ctx context.Context, s *Server) error {
		return s.run(ctx, install, "--no-defaults", "--datadir="+s.Data, "--auth-root-authentication-method=normal")
	}
	return mariadb.new(ctx, dir, "/usr/sbin/mariadbd", settings)
}

// run runs a program as the server runs.
func (s *Server) run(ctx context.Context, path string, arguments ...string) error {
	c := exec.CommandContext(ctx, path, arguments...)
	c.SysProcAttr, c.Dir, c.Env = s.become, s.Dir, append(os.Environ(), "TMPDIR="+s.Dir) // which that user may write
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w:\n%s", path, err, out)
	}
	return nil
}

// reserve has the kernel choose a port. It chooses it for nobody else while the file is open, so that the
// server finds it free, and again whenever it starts. That server may listen there, because it sets
// SO_REUSEADDR as this does: on Linux. Elsewhere another program may take the port before, and then the
// server ends and says so.
func reserve() (*os.File, int, error) {
	syscall.ForkLock.RLock()
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(socket)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, 0, os.NewSyscallError("socket", err)
	}
	file := os.NewFile(uintptr(socket), "port")
	if err := errors.Join(
		syscall.SetsockoptInt(socket, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1),
		syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}),
	); err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	bound, err := syscall.Getsockname(socket)
	if err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	if runtime.GOOS != "linux" {
		err = file.Close()
	}
	return file, bound.(*syscall.SockaddrInet4).Port, err
}

// account gives a directory to a user and says how to run a program as that one,
// where root is who asks: databases refuse to run as root.
func account(name, dir string) (*syscall.SysProcAttr, error) {
	if os.Getuid() != 0 {
		return nil, nil //nolint:nilnil // as whoever asks
	}
	u, err := user.Lookup(name)
	if err != nil {
		return nil, err
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	if err := os.Chown(dir, uid, gid); err != nil {
		return nil, err
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
}
