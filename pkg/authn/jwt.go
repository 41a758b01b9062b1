package authn

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/install"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	authncel "k8s.io/apiserver/pkg/authentication/cel"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/follow"
)

// JWT recognises callers by tokens that OpenID Connect issuers signed, as the
// AuthenticationConfiguration of apiserver.config.k8s.io/v1 says: any number of
// issuers, and CEL rules for claims and users.
// https://kubernetes.io/docs/reference/access-authn-authz/authentication/#using-authentication-configuration
//
// An issuer that does not answer when a server starts does not stop it: its
// tokens are refused until it does. It is asked again every 10 seconds.
type JWT struct {
	// ConfigFile is a file with the configuration. Changes take effect within
	// seconds, when the issuers answer; a file that cannot be used changes
	// nothing and is logged. Required unless Config is set.
	ConfigFile string
	// Read is how ConfigFile is read. A program whose own file has the configuration
	// as a section returns that section, as the content of a ConfigFile. It is called
	// every second and returns the same bytes until the configuration changes. Parts
	// that share a function call it at the same time. Empty: os.ReadFile.
	Read func(file string) ([]byte, error)
	// Config is the configuration. One part with a Config lists all issuers. Neither
	// it nor the file may have field anonymous: add [Anonymous] instead. Required
	// unless ConfigFile is set.
	Config *apiserver.AuthenticationConfiguration
}

// PartName implements the name errors use.
func (JWT) PartName() string { return "authn.JWT" }

// Install declares the authenticator and the work that follows the file.
func (j JWT) Install(p *controlplane.Plan) error {
	if (j.ConfigFile == "") == (j.Config == nil) {
		return errors.New("fields ConfigFile and Config: set exactly one")
	}
	if j.Read != nil && j.ConfigFile == "" {
		return errors.New("field Read: is how ConfigFile is read, which is empty: set both")
	}
	known := &issuers{}
	if j.Config == nil {
		source := follow.Source{What: "authentication configuration", File: j.ConfigFile, Read: j.Read}
		file := followed(p, "field ConfigFile", source, parseValid, known.replace)
		p.Authenticate(file.Name(), bearer(known))
		return nil
	}

	config := j.Config.DeepCopy()
	if err := validateConfig(authncel.NewDefaultCompiler(), config); err != nil {
		return fmt.Errorf("field Config: %w", err)
	}
	replace := func(ctx context.Context, _ *controlplane.Plane) error { return known.replace(ctx, config) }
	p.Work(controlplane.Work{Name: "token issuers", Start: replace})
	p.Authenticate("token issuers", bearer(known))
	return nil
}

// parseValid reads a valid AuthenticationConfiguration.
func parseValid(content []byte) (*apiserver.AuthenticationConfiguration, error) {
	config, err := parseConfig(content)
	if err != nil {
		return nil, err
	}
	return config, validateConfig(authncel.NewDefaultCompiler(), config)
}

// parseConfig reads an AuthenticationConfiguration of any version, and refuses
// unknown fields.
func parseConfig(content []byte) (*apiserver.AuthenticationConfiguration, error) {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	codecs := serializer.NewCodecFactory(scheme, serializer.EnableStrict)
	obj, kind, err := codecs.UniversalDecoder().Decode(content, nil, nil)
	if err != nil {
		return nil, err
	}
	config, ok := obj.(*apiserver.AuthenticationConfiguration)
	if !ok {
		return nil, fmt.Errorf("found kind %s, want AuthenticationConfiguration of apiserver.config.k8s.io/v1", kind.Kind)
	}
	return config, nil
}

// validateConfig checks what upstream does, and refuses what a plane does not have.
func validateConfig(compiler authncel.Compiler, config *apiserver.AuthenticationConfiguration) error {
	errs := validation.ValidateAuthenticationConfiguration(compiler, config, nil)
	if config.Anonymous != nil {
		errs = append(errs, field.Forbidden(field.NewPath("anonymous"), "list the paths in authn.Anonymous instead"))
	}
	for i, a := range config.JWT {
		if a.Issuer.EgressSelectorType != "" {
			errs = append(errs, field.Forbidden(field.NewPath("jwt").Index(i).Child("issuer", "egressSelectorType"),
				"this server has no egress selectors: leave it empty"))
		}
	}
	return errs.ToAggregate()
}
