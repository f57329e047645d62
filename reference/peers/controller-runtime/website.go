// The kind of the operator, as controller-gen would have written its code.
package main

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/scheme"
)

// The benchmark installs the definition.
var groupVersion = schema.GroupVersion{Group: "example.dev", Version: "v1"}

// A Website is served by a Deployment, a Service and a ConfigMap.
type Website struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   WebsiteSpec   `json:"spec"`
	Status WebsiteStatus `json:"status,omitempty"`
}

type WebsiteSpec struct {
	Image    string `json:"image"`
	Replicas int32  `json:"replicas"`
	Secret   string `json:"secret,omitempty"`
}

type WebsiteStatus struct {
	ReadyReplicas int32              `json:"readyReplicas"`
	Conditions    []metav1.Condition `json:"conditions,omitempty"`
}

type WebsiteList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Website `json:"items"`
}

func addToScheme(target *runtime.Scheme) error {
	builder := &scheme.Builder{GroupVersion: groupVersion}
	return builder.Register(&Website{}, &WebsiteList{}).AddToScheme(target)
}

func (in *Website) DeepCopyInto(out *Website) {
	*out = *in
	in.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	in.Status.DeepCopyInto(&out.Status)
}

func (in *Website) DeepCopy() *Website {
	out := new(Website)
	in.DeepCopyInto(out)
	return out
}

func (in *Website) DeepCopyObject() runtime.Object {
	return in.DeepCopy()
}

func (in *WebsiteStatus) DeepCopyInto(out *WebsiteStatus) {
	*out = *in
	if in.Conditions != nil {
		out.Conditions = make([]metav1.Condition, len(in.Conditions))
		for at := range in.Conditions {
			in.Conditions[at].DeepCopyInto(&out.Conditions[at])
		}
	}
}

func (in *WebsiteList) DeepCopyObject() runtime.Object {
	out := &WebsiteList{TypeMeta: in.TypeMeta}
	in.ListMeta.DeepCopyInto(&out.ListMeta)
	if in.Items != nil {
		out.Items = make([]Website, len(in.Items))
		for at := range in.Items {
			in.Items[at].DeepCopyInto(&out.Items[at])
		}
	}
	return out
}
