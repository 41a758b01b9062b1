package federation

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/sailplane-dev/sailplane/test/federation/behind"
)

// TestPage does what docs/federation.md says, at ports that are free.
func TestPage(t *testing.T) {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "docs", "federation.md"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(filepath.Join(root, "config"), filepath.Join(dir, "config")); err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	if err := os.Symlink(programs(t).Sample, filepath.Join(bin, "sample-apiserver")); err != nil {
		t.Fatal(err)
	}
	client := startEtcd(t)
	ports := []string{"http://127.0.0.1:2379", client}
	for _, fixed := range []string{"7000", "7001", "7002", "7003"} {
		ports = append(ports, fixed, port(t))
	}
	elsewhere, running := strings.NewReplacer(ports...), map[string]*behind.Process{}
	env := append(os.Environ(), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"), "HOME="+dir,
		"KUBECONFIG="+filepath.Join(dir, "front", "admin.kubeconfig"))
	commands := commandsOf(string(text))
	if len(commands) < 30 {
		t.Fatalf("the page has %d commands: is it read right?", len(commands))
	}
	for _, c := range commands {
		line := elsewhere.Replace(c.text)
		if background, ok := strings.CutSuffix(line, " &"); ok {
			cmd := exec.Command("sh", "-c", "exec "+background)
			cmd.Dir, cmd.Env = dir, env
			running[background] = launch(t, cmd)
			continue
		}
		if what := regexp.MustCompile(`^kill .*pgrep -f '(.*)'`).FindStringSubmatch(line); what != nil {
			for name, p := range running { // and no process that somebody else started
				if strings.Contains(name, what[1]) {
					p.Kill()
				}
			}
			continue
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*patience) // a server that ended is waited for in vain
		cmd := exec.CommandContext(ctx, "bash", "-c", line)
		cmd.Dir, cmd.Env = dir, env
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		out, _ := cmd.CombinedOutput() // what it prints tells
		cancel()
		got := strings.TrimSpace(string(out))
		if strings.HasPrefix(line, "until ") {
			got = strings.TrimSpace(noise().ReplaceAllString(got, ""))
		}
		if got != strings.TrimSpace(c.output) {
			t.Fatalf("$ %s\nprints:\n%s\nand not:\n%s", line, got, c.output)
		}
	}
}

// noise is what commands print that are tried until they succeed.
func noise() *regexp.Regexp {
	return regexp.MustCompile(`(?m)^(.*(connection refused|was refused|no such file|Service Unavailable|not found in config|couldn't get|\[[-+]\].*|unable to load|` +
		`invalid configuration|currently unable|stat |error: ).*)\n?`)
}

type command struct{ text, output string }

// commandsOf are the commands of the console blocks of a page.
func commandsOf(page string) []command {
	var all []command
	inside := false
	for line := range strings.SplitSeq(page, "\n") {
		switch {
		case strings.HasPrefix(line, "```"):
			inside = line == "```console"
		case !inside:
		case strings.HasPrefix(line, "$ "):
			all = append(all, command{text: strings.TrimPrefix(line, "$ ")})
		default:
			last := &all[len(all)-1]
			if strings.Contains(last.text, "<<EOF") && !strings.HasSuffix(last.text, "\nEOF") {
				last.text += "\n" + line
				continue
			}
			last.output += line + "\n"
		}
	}
	return all
}
