module postroad/hole

go 1.25

require github.com/michaelklishin/rabbit-hole/v3 v3.2.0
