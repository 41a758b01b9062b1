package main

import (
	"encoding/json"
	"os"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api/v1"

	"github.com/sailplane-dev/sailplane/test/script"
)

// account writes a kubeconfig with a token of a ServiceAccount: its program may do what its
// manifests allow, and no more, as in a pod.
func account(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: account NAMESPACE/NAME FILE")
	}
	namespace, name, _ := strings.Cut(args[0], "/")
	token := output(ts, "kubectl", "create", "token", "--namespace", namespace, name, "--duration", "24h")
	var config clientcmdapi.Config
	ts.Check(json.Unmarshal(output(ts, "kubectl", "config", "view", "--raw", "--minify", "--output", "json"), &config))
	for i := range config.AuthInfos {
		config.AuthInfos[i].AuthInfo = clientcmdapi.AuthInfo{Token: strings.TrimSpace(string(token))}
	}
	text, err := json.Marshal(config)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), text, 0o600))
}

// output runs a command, which must succeed.
func output(ts *testscript.TestScript, args ...string) []byte {
	cmd, err := script.Command(ts, args)
	ts.Check(err)
	cmd.Stderr = ts.Stderr()
	out, err := cmd.Output()
	ts.Check(err)
	return out
}
