// Package t4 keeps a server's objects in t4 (https://github.com/t4db/t4), a
// database in this process with its files in a directory and, if configured, a
// copy of its log in an S3 bucket. It runs with kine's driver:
// docs/storage/kine.md says what does not hold there.
package t4

import (
	"errors"
	"net/url"

	"github.com/k3s-io/kine/pkg/drivers"
	driver "github.com/k3s-io/kine/pkg/drivers/t4"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/kine"
)

// Node is a t4 database that only this server uses. The URL is t4:///directory,
// or t4://directory for one below the working directory. Its query has the
// bucket, folder, endpoint and region of S3, and the settings of kine's driver:
// node-id, checkpoint-interval and segment-max-age. The access key of S3 is the
// user of the URL and its secret the password: t4://key@/directory. Or "profile"
// in the query names one of ~/.aws. CAFile is for S3 as well. DialTimeout is not
// used: the context of the start bounds it.
type Node kine.Remote

var _ controlplane.Storage = Node{}

// String leaves the credentials out.
func (n Node) String() string { return kine.Remote(n).Name("t4") }

// Traits implements controlplane.Storage. t4 syncs its log before it answers.
func (Node) Traits() controlplane.Traits { return controlplane.Traits{Engine: "t4", Durable: true} }

// Open implements controlplane.Storage.
func (n Node) Open() controlplane.Backend {
	return kine.Open(kine.Driver{
		Name: n.String(),
		Limits: "an event may come after the progress notification of its revision, " +
			"and a compaction may drop events that a watch has not received yet; " +
			"see docs/storage/kine.md",
		New: driver.New, Config: n.config,
	})
}

// config returns the description in kine's form: a path, and S3 separately.
func (n Node) config() (drivers.Config, []string, error) {
	u, config, secrets, err := kine.Remote(n).Resolve("t4")
	if err != nil {
		return config, secrets, err
	}
	query := u.Query()
	directory := u.Host + u.Path
	secret, _ := u.User.Password()
	switch {
	case directory == "" || directory == "/":
		return config, secrets, errors.New("the URL names no directory: t4:///directory")
	case n.CertFile != "":
		return config, secrets, errors.New("S3 takes no certificate: use the access key")
	case query.Has("service-name"):
		return config, secrets, errors.New("service-name is not supported: a t4 database has one server")
	case u.User != nil && query.Get("bucket") == "":
		return config, secrets, errors.New("there is an access key but no bucket")
	}
	config.BackendTLSConfig.CAFile = ""
	config.S3Config = drivers.S3Config{
		Bucket: query.Get("bucket"), Folder: query.Get("folder"), Endpoint: query.Get("endpoint"),
		Region: query.Get("region"), Profile: query.Get("profile"),
		AccessKey: u.User.Username(), SecretKey: secret, CABundle: n.CAFile,
	}
	config.DataSourceName = directory + "?" + settings(query).Encode()
	return config, secrets, nil
}

// settings returns the parts of a query that kine reads from its own URL.
func settings(query url.Values) url.Values {
	rest := url.Values{}
	for _, name := range []string{"node-id", "checkpoint-interval", "segment-max-age"} {
		if query.Has(name) {
			rest.Set(name, query.Get(name))
		}
	}
	return rest
}
