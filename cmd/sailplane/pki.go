package main

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/big"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/tools/clientcmd"
	certutil "k8s.io/client-go/util/cert"

	"github.com/sailplane-dev/sailplane/cmd/sailplane/internal/config"
	"github.com/sailplane-dev/sailplane/cmd/sailplane/internal/server"
	"github.com/sailplane-dev/sailplane/pkg/authn"
)

func kubeconfigCommand() *cobra.Command {
	s := &settings{}
	login := authn.Login{}
	out := ""
	c := &cobra.Command{
		Use:   "kubeconfig --user NAME",
		Short: "Make a kubeconfig for a user",
		Long: `Make a kubeconfig for a user, with a client certificate that the server's own
authority signs. The server need not run. It is good for what roles allow the user
and the groups, until it ends, or until "sailplane pki revoke" takes it back.

  sailplane kubeconfig --user ann --group growers --for 8h > ann.kubeconfig`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			admin, _, err := s.administrator()
			if err != nil {
				return err
			}
			if login.User == "" || login.Lifetime < 0 {
				return misused(errors.New("--user, --for: name the user, and a duration above 0, such as 8h"))
			}
			if _, err := os.Stat(admin.Kubeconfig); login.Server == "" && err != nil {
				return misused(fmt.Errorf("no server has run with these: %w: name its --data-dir, or the URL with --server", err))
			}
			text, end, err := admin.Issue(login)
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintf(cmd.ErrOrStderr(), "user %s, groups %s, until %s\n",
				login.User, cmp.Or(strings.Join(login.Groups, ","), "none"), end.Local().Format(time.DateTime)); err != nil {
				return err
			}
			if out == "" {
				_, err = cmd.OutOrStdout().Write(text)
				return err
			}
			return os.WriteFile(out, text, 0o600)
		},
	}
	f := c.Flags()
	f.StringVar(&login.User, "user", "", "name of the user (required)")
	f.StringArrayVar(&login.Groups, "group", nil, "group that the user is in; may be repeated")
	f.DurationVar(&login.Lifetime, "for", 8*time.Hour, "how long the certificate is valid")
	f.StringVar(&login.Server, "server", "", "URL of the server (default that of the administrator's kubeconfig)")
	f.StringVar(&login.CAFile, "certificate-authority", "",
		"file with further authorities to trust, for a server whose certificate is not its own (--tls-cert-file)")
	f.StringVar(&out, "out", "", "file to write, mode 0600 (default standard output)")
	s.only(c, "data-dir", "kubeconfig")
	return c
}

func pkiCommand() *cobra.Command {
	s := &settings{}
	c := &cobra.Command{
		Use:   "pki",
		Short: "Show the certificates of a server and of its users, and until when they are valid",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			admin, c, err := s.administrator()
			if err != nil {
				return err
			}
			all, err1 := admin.Certificates()
			clients, err2 := admin.ClientCertificates()
			if err := errors.Join(err1, err2); err != nil {
				return err
			}
			now := time.Now()
			return errors.Join(listCertificates(cmd.OutOrStdout(), all, c, now), listClients(cmd.OutOrStdout(), clients, now))
		},
	}
	s.only(c, "data-dir", "kubeconfig", "tls-cert-file", "tls-sni-cert-key", "client-ca-file")
	renewing := &settings{}
	renew := &cobra.Command{
		Use:   "renew",
		Short: "Issue the serving certificate and the administrator's again",
		Long: `Issue the serving certificate and the administrator's again. A running server
takes them within seconds, and connections stay open. A server renews them by itself: the
serving certificate 30 days before it ends, the administrator's 10 days before.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			admin, _, err := renewing.administrator()
			if err != nil {
				return err
			}
			return admin.Renew(cmd.Context())
		},
	}
	renewing.only(renew, "data-dir", "kubeconfig")
	c.AddCommand(renew, revokeCommand())
	return c
}

func revokeCommand() *cobra.Command {
	s := &settings{}
	c := &cobra.Command{
		Use:   "revoke SERIAL|FILE",
		Short: "Take back the certificate of a user",
		Long: `Take back a client certificate that the server's own authority signed: by its serial
number, as "sailplane pki" shows it, or by a kubeconfig or a certificate file. A running
server refuses it within seconds, also on open connections, and ends watches within a
minute. The list is revoked.crl in folder pki of the data directory.

  sailplane pki revoke ann.kubeconfig`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			admin, _, err := s.administrator()
			if err != nil {
				return err
			}
			serial, err := serialOf(args[0], admin.Signed)
			if err != nil {
				return misused(err)
			}
			if err := admin.Revoke(cmd.Context(), serial); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "revoked %x\n", serial)
			return err
		},
	}
	s.only(c, "data-dir", "kubeconfig")
	return c
}

// serialOf returns the serial number that an argument is, or that of the certificate in
// the file that it names, which the server's authority has to have signed.
func serialOf(arg string, signed func(*x509.Certificate) (bool, error)) (*big.Int, error) {
	content, err := os.ReadFile(arg)
	if errors.Is(err, fs.ErrNotExist) {
		digits := strings.TrimPrefix(strings.ReplaceAll(arg, ":", ""), "0x")
		serial, ok := new(big.Int).SetString(digits, 16)
		if !ok || serial.Sign() < 0 {
			return nil, fmt.Errorf("%q is no file, and no serial number in hexadecimal digits as \"sailplane pki\" shows it", arg)
		}
		return serial, nil
	}
	if err != nil {
		return nil, err
	}
	if config, err := clientcmd.Load(content); err == nil && config.Contexts[config.CurrentContext] != nil {
		if user := config.AuthInfos[config.Contexts[config.CurrentContext].AuthInfo]; user != nil {
			content = user.ClientCertificateData
		}
	}
	certs, err := certutil.ParseCertsPEM(content)
	if err != nil {
		return nil, fmt.Errorf("%s: there is no client certificate in it: want a kubeconfig or a file in PEM: %w", arg, err)
	}
	if own, err := signed(certs[0]); err != nil {
		return nil, err
	} else if !own {
		return nil, fmt.Errorf("%s: another authority signed its certificate: name the --data-dir of the server that made it", arg)
	}
	return certs[0].SerialNumber, nil
}

// administrator returns the part with the server's authority.
func (s *settings) administrator() (authn.Admin, *config.Server, error) {
	_, c, err := s.document()
	if err != nil {
		return authn.Admin{}, nil, err
	}
	if c.DataDir == "" {
		return authn.Admin{}, nil, misused(errors.New("--data-dir is empty: a server without one has no authority of its own"))
	}
	return server.Administrator(c), c, nil
}

// listCertificates prints what there is: the server's own, and those that are given.
func listCertificates(to io.Writer, own map[string]*x509.Certificate, c *config.Server, now time.Time) error {
	all := maps.Clone(own)
	files := []string{c.Serving.CertFile, c.Authentication.ClientCAFile}
	for _, further := range c.Serving.Certificates {
		files = append(files, further.CertFile)
	}
	var errs []error
	for _, file := range slices.DeleteFunc(files, func(f string) bool { return f == "" }) {
		certs, err := certutil.CertsFromFile(file)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		all[file] = certs[0]
	}
	w := tabwriter.NewWriter(to, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "FILE\tFOR\tISSUER\tUNTIL\tLEFT")
	for _, file := range slices.Sorted(maps.Keys(all)) {
		cert := all[file]
		left := duration.HumanDuration(cert.NotAfter.Sub(now))
		if now.After(cert.NotAfter) {
			left = "ended"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", file, subject(cert), cert.Issuer.CommonName, cert.NotAfter.Format(time.DateOnly), left)
	}
	return errors.Join(append(errs, w.Flush())...)
}

// listClients prints whom the server's own authority lets in.
func listClients(to io.Writer, clients []authn.ClientCertificate, now time.Time) error {
	if len(clients) == 0 {
		return nil
	}
	w := tabwriter.NewWriter(to, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "\nSERIAL\tUSER\tUNTIL\tLEFT")
	for _, c := range clients {
		left := duration.HumanDuration(c.NotAfter.Sub(now))
		if c.Revoked {
			left = "revoked"
		}
		fmt.Fprintf(w, "%x\t%s\t%s\t%s\n", c.SerialNumber, subject(c.Certificate), c.NotAfter.Format(time.DateOnly), left)
	}
	return w.Flush()
}

// subject says what a certificate is for: its names, or its user and groups.
func subject(cert *x509.Certificate) string {
	names := slices.Clone(cert.DNSNames)
	for _, ip := range cert.IPAddresses {
		names = append(names, ip.String())
	}
	if len(names) > 0 {
		return strings.Join(names, ",")
	}
	if len(cert.Subject.Organization) > 0 {
		return cert.Subject.CommonName + " of " + strings.Join(cert.Subject.Organization, ",")
	}
	return cert.Subject.CommonName
}
