package encryption

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/install"
	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"sigs.k8s.io/yaml"

	"github.com/sailplane-dev/sailplane/pkg/internal/secretfile"
)

// manual is where the fields are described.
const manual = "https://kubernetes.io/docs/tasks/administer-cluster/encrypt-data/"

// check returns what is wrong with a file. Errors have no key in them.
func check(file string) error {
	content, err := secretfile.Read(file)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: write one, see %s", err, manual)
	}
	if err != nil {
		return err
	}
	if err := validate(content); err != nil {
		return explain(file, err)
	}
	return nil
}

// validate does what upstream does with the content of a file before it connects to
// key services. It is more precise where upstream reports badly.
func validate(content []byte) error {
	if len(content) == 0 {
		return errors.New("the file is empty")
	}
	var found metav1.TypeMeta
	if err := yaml.Unmarshal(content, &found); err != nil {
		return err
	}
	want := apiserverv1.SchemeGroupVersion.WithKind("EncryptionConfiguration")
	if found.GroupVersionKind() != want {
		return fmt.Errorf("found apiVersion %q, kind %q, want %s, %s", found.APIVersion, found.Kind, want.GroupVersion(), want.Kind)
	}
	scheme := runtime.NewScheme()
	install.Install(scheme)
	config := &apiserver.EncryptionConfiguration{}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDecoder()
	if _, _, err := decoder.Decode(content, nil, config); err != nil {
		return err
	}
	problems := validation.ValidateEncryptionConfiguration(config, true)
	for _, p := range problems {
		if _, ok := p.BadValue.(apiserver.ProviderConfiguration); ok {
			p.BadValue = field.OmitValueType{} // it has keys
		}
	}
	return errors.Join(problems.ToAggregate(), loadable(config))
}

// loadable finds what upstream refuses only when it makes transformers, which
// connects to key services: an old version of their protocol, and rules that never
// count.
func loadable(config *apiserver.EncryptionConfiguration) error {
	old := utilfeature.DefaultFeatureGate.Enabled(features.KMSv1)
	everything := schema.GroupResource{Group: "*", Resource: "*"}
	rules := map[schema.GroupResource]string{} // the text of each
	var errs []error
	for i, r := range config.Resources {
		for j, p := range r.Providers {
			if p.KMS != nil && p.KMS.APIVersion == "v1" && !old {
				errs = append(errs, fmt.Errorf("resources[%d].providers[%d].kms.apiVersion: it is v1, the default: write v2", i, j))
			}
		}
		for j, text := range r.Resources {
			rule := schema.ParseGroupResource(text)
			for _, wider := range []schema.GroupResource{everything, {Group: rule.Group, Resource: "*"}} {
				if earlier, masked := rules[wider]; masked {
					errs = append(errs, fmt.Errorf("resources[%d].resources[%d]: resource %q is masked by earlier rule %q",
						i, j, text, earlier))
					break
				}
			}
			rules[rule] = text
		}
	}
	return errors.Join(errs...)
}

// explain adds to an error the file, the line of the first field it names, and
// where to read on.
func explain(file string, err error) error {
	where := file
	path := regexp.MustCompile(`resources(\[\d+\])?(\.\w+(\[\d+\])?)*`).FindString(err.Error())
	if content, readErr := os.ReadFile(file); readErr == nil && path != "" {
		if line := lineOf(content, path); line > 0 {
			where = fmt.Sprintf("%s: line %d", file, line)
		}
	}
	return fmt.Errorf("%s: %w: correct it, see %s", where, err, manual)
}

// lineOf is the line of the field at a path such as resources[0].providers, or
// of the last one on the way that exists; 0 when none does.
func lineOf(content []byte, path string) int {
	var document yamlv3.Node
	if yamlv3.Unmarshal(content, &document) != nil || len(document.Content) == 0 {
		return 0
	}
	node, line := document.Content[0], 0
	for _, step := range strings.FieldsFunc(path, func(r rune) bool { return strings.ContainsRune(".[]", r) }) {
		var next *yamlv3.Node
		if i, err := strconv.Atoi(step); err == nil && node.Kind == yamlv3.SequenceNode && i < len(node.Content) {
			next = node.Content[i]
			line = next.Line
		}
		for i := 0; node.Kind == yamlv3.MappingNode && i+1 < len(node.Content); i += 2 {
			if node.Content[i].Value == step {
				next, line = node.Content[i+1], node.Content[i].Line
			}
		}
		if next == nil {
			break
		}
		node = next
	}
	return line
}
